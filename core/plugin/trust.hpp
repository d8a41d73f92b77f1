// Whether a file may be loaded into this process: only root and the effective user may be able to
// change it.
#pragma once

#include "core/base/status.hpp"

#include <string>

namespace penstock {

// The absolute, real path (no symbolic links) of `path`. Refuses a relative path and a bare name,
// because they depend on the working directory or on the loader's search path. NOT_FOUND if the
// path does not exist.
Result<std::string> real_path(const std::string& path);

// FAILED_PRECONDITION names the first file or directory on the path that another user could change:
// it is writable by everybody, or by a group that may have other members (a sticky directory passes
// if its entry is private), or its owner is neither root nor the effective user. Root's group
// passes, and the user's own private group: the primary group, with the user's name and no other
// members. `path` is a result of real_path. With allow_insecure everything passes.
Status check_trust(const std::string& path, bool allow_insecure);

}  // namespace penstock

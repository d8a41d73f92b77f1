// Whether a file may be loaded into this process: nobody but root and the user we run as may be
// able to change it.
#pragma once

#include "core/base/status.hpp"

#include <string>

namespace penstock {

// The absolute, real path (no symbolic links) of `path`. Refused: a relative path or a bare name,
// which would depend on the working directory or on the loader's search path; NOT_FOUND for a path
// that leads nowhere.
Result<std::string> real_path(const std::string& path);

// FAILED_PRECONDITION names the first file or directory on the way to `path` that others could
// change: writable by everybody, or by a group of which others may be members (a sticky directory
// passes when what lies in it is private), or owned by neither root nor the effective user. Groups
// that pass are root's and the user's own private one: his primary group, under his name, without
// other members. `path` is what real_path gave. With allow_insecure nothing
// is refused.
Status check_trust(const std::string& path, bool allow_insecure);

}  // namespace penstock

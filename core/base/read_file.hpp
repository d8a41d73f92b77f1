// Reads files that a user names.
#pragma once

#include "core/base/status.hpp"

#include <cstdint>
#include <string>

namespace penstock {

// All bytes of the file `path`. `what` names it in errors ("FILE: WHAT cannot be read: ...").
// INVALID_ARGUMENT for more than `most_bytes`; see cannot_read() for errors of the system.
Result<std::string> read_whole_file(const std::string& path, std::string_view what,
                                    uintmax_t most_bytes);

}  // namespace penstock

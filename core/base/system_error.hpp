// The system's text for a failed system call, with a hint that helps.
#pragma once

#include "core/base/status.hpp"

#include <string>

namespace penstock {

// "too many open files; raise the limit of this process (ulimit -n)".
std::string system_error_text(int error);

// "WHAT: ...", for a resource that the system refused: FAILED_PRECONDITION if it is exhausted, in
// use or not permitted, else INTERNAL.
Status not_given(std::string_view what, int error);

// "FILE: WHAT cannot be read: ...". `error` decides the code: NOT_FOUND for a file that does not
// exist or may not be read, FAILED_PRECONDITION for an exhausted resource. `error` 0: the system
// reported none.
Status cannot_read(std::string_view file, std::string_view what, int error);

}  // namespace penstock

// What the system says to a call that failed, with what helps.
#pragma once

#include "core/base/status.hpp"

#include <string>

namespace penstock {

// "too many open files; raise the limit of this process (ulimit -n)".
std::string system_error_text(int error);

// "WHAT: ...", for a resource that the system did not give: FAILED_PRECONDITION where it is used
// up, taken or not ours to have, else INTERNAL.
Status not_given(std::string_view what, int error);

// "FILE: WHAT cannot be read: ...". What the error hints at decides the kind: NOT_FOUND for a file
// that is not there or not ours to read, FAILED_PRECONDITION for what is used up. `error` 0: not
// told by the system.
Status cannot_read(std::string_view file, std::string_view what, int error);

}  // namespace penstock

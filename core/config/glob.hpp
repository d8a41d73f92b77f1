// Shell patterns over gradient names.
#pragma once

#include "core/base/status.hpp"

#include <string_view>

namespace penstock {

// Whether the whole `text` matches `pattern`: * any run, ? any byte, [a-z] [!a-z] one byte of a
// set, \ quotes the next byte. Time is bounded by size(pattern) * size(text).
bool glob_fits(std::string_view pattern, std::string_view text);

// INVALID_ARGUMENT for a pattern that is empty, has an open [ or ends in a backslash.
Status check_glob(std::string_view pattern);

}  // namespace penstock

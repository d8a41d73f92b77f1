// The nesting depth of dotted keys in a TOML text, checked before the text is parsed: each part
// becomes a table within a table, and the parser processes nested tables by recursion without a
// limit of its own.
#pragma once

#include "core/base/status.hpp"
#include "core/config/config.hpp"

#include <string>
#include <string_view>

namespace penstock {

// The limit of parts of a dotted key, and of nested arrays and tables. No key of Penstock has more
// than four parts.
inline constexpr size_t kMostNesting = 32;

// INVALID_ARGUMENT with file, line and column of the first key with more parts than kMostNesting.
// Text that is not TOML passes: it is read up to its first syntax error, at which the parser ends
// too.
Status check_dotted_keys(std::string_view text, const std::string& file);

}  // namespace penstock

// How deep the dotted keys of a TOML text nest, found before it is parsed: each part becomes a
// table within a table, and the parser takes them apart by recursion, without a bound of its own.
#pragma once

#include "core/base/status.hpp"
#include "core/config/config.hpp"

#include <string>
#include <string_view>

namespace penstock {

// Parts of a dotted key, and arrays and tables written within each other. No key of ours has more
// than four.
inline constexpr size_t kMostNesting = 32;

// INVALID_ARGUMENT with file, line and column of the first key that has more parts than that. Text
// that is no TOML passes: up to its first fault it is read as the parser reads it, and there the
// parser ends.
Status check_dotted_keys(std::string_view text, const std::string& file);

}  // namespace penstock

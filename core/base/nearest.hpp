// The nearest known name to one that is not known, for error messages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

// Insertions, deletions, substitutions and swaps of neighbours that lead from `a` to `b`; letter
// case does not count.
size_t edit_distance(std::string_view a, std::string_view b);

// The known name with the smallest edit distance, the first among equals; empty where none is near
// enough to be meant.
std::string nearest_name(std::string_view wanted, const std::vector<std::string>& known);

// End of an error message: `; did you mean "topk"?`, or else `; known are: a, b, c`, or nothing if
// nothing is known.
std::string did_you_mean(std::string_view wanted, const std::vector<std::string>& known);

}  // namespace penstock

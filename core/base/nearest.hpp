// Finds the known name nearest to an unknown name, for error messages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

// The number of insertions, deletions, substitutions and swaps of neighbours that turn `a` into
// `b`; case is ignored.
size_t edit_distance(std::string_view a, std::string_view b);

// The known name with the smallest edit distance, the first of equals; empty if no name is near
// enough to be meant.
std::string nearest_name(std::string_view wanted, const std::vector<std::string>& known);

// End of an error message: `; did you mean "topk"?`, or else `; known are: a, b, c`, or an empty
// text if no name is known.
std::string did_you_mean(std::string_view wanted, const std::vector<std::string>& known);

}  // namespace penstock

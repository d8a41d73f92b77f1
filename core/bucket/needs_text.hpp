// What the items of a set need, as text that must be equal on all its ranks.
#pragma once

#include "core/bucket/bucket.hpp"

#include <memory>
#include <string>
#include <vector>

namespace penstock {

// " state 3 x 4 float32", for each.
std::string states_text(const penstock_state_declaration* const* states, uint64_t n);

// One line for each item: rounds with their sections, states, what work is. Left out is what a rank
// may decide alone: scratch, and whether calls are folded.
std::string needs_text(const std::vector<std::vector<std::unique_ptr<BucketRun>>>& buckets);

}  // namespace penstock

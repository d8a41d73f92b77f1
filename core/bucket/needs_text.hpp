// The needs of a set's items, as text that must be equal on all ranks of the set.
#pragma once

#include "core/bucket/bucket.hpp"

#include <memory>
#include <string>
#include <vector>

namespace penstock {

// Text such as " state 3 x 4 float32" for each state.
std::string states_text(const penstock_state_declaration* const* states, uint64_t n);

// One line for each item: its rounds with their sections, its states, and the kind of its work. The
// text leaves out facts that a rank may decide alone: scratch, and whether calls are folded.
std::string needs_text(const std::vector<std::vector<std::unique_ptr<BucketRun>>>& buckets);

}  // namespace penstock

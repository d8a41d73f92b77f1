// The saved state of a set on one rank.
#pragma once

#include "core/base/status.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

// Views of the bytes that were read.
struct SavedSet {
  std::string name;
  uint32_t rank = 0, world = 0;
  uint64_t step = 0;
  std::string_view plan, tensors;
  std::vector<std::string_view> carries;  // of each gradient; empty: none
};

// Appends the state to `out`.
void write_saved(const SavedSet& saved, std::string& out);

// INVALID_ARGUMENT if the bytes are damaged or of another model. `set`: its name, for messages.
Result<SavedSet> read_saved(std::string_view bytes, std::string_view set, size_t n_gradients);
// Reads the states of all ranks that saved together, in order of ranks. MISMATCH unless all are of
// one step and plan.
Result<std::vector<SavedSet>> read_all_saved(std::span<const std::string_view> shards,
                                             std::string_view set, size_t n_gradients);

}  // namespace penstock

// The saved state of a set on one rank, as save writes it.
#pragma once

#include "core/base/status.hpp"

#include <cstdint>
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

// INVALID_ARGUMENT for bytes that are damaged, or of another model. `set`: for messages.
Result<SavedSet> read_saved(std::string_view bytes, std::string_view set, size_t n_gradients);

}  // namespace penstock

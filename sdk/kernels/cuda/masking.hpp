// Momentum factor masking on a device (Deep Gradient Compression, section 3.2): entries of the
// momentum become zero where they were sent, and what they were is kept, so that a step that turns
// out not to be applied can be undone. Contract: workspace.hpp.
//
// What there is to undo lies on the device in two words: a mark of the step that did it, and how
// many entries it changed, or kMaskedAll. Whoever undoes asks for a mark, and nothing happens where
// another one stands there.
#pragma once

#include <kernels/cuda/workspace.hpp>

#include <cstdint>

namespace penstock::kernels::cuda {

inline constexpr uint64_t kMaskedAll = UINT64_MAX - 1;

// One gradient's. `momentum` and, for kMaskedAll, `values` have n entries.
struct Masked {
  float* momentum;
  uint64_t n;
  float* values;      // what the masked entries were
  uint32_t* indices;  // and which; not looked at for kMaskedAll
  uint64_t* undo;     // mark and count
};

// Keeps and clears momentum[indices[j]], count of them, each below n and no two alike.
[[nodiscard]] int32_t mask_entries(const Masked& masked, const uint32_t* indices, uint64_t count,
                                   uint64_t mark, void* stream) noexcept;
// Keeps all of the momentum, and then clears all of it, or those entries.
[[nodiscard]] int32_t mask_all(const Masked& masked, uint64_t mark, void* stream) noexcept;
[[nodiscard]] int32_t mask_entries_of_all(const Masked& masked, const uint32_t* indices,
                                          uint64_t count, uint64_t mark, void* stream) noexcept;

// The momentum is again what it was, if `mark` stands there, and the mark is gone.
[[nodiscard]] int32_t unmask(const Masked& masked, uint64_t mark, void* stream) noexcept;

}  // namespace penstock::kernels::cuda

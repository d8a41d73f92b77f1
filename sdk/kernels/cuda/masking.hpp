// Momentum factor masking on a device (Deep Gradient Compression, section 3.2): the momentum of
// entries that were sent becomes zero. Contract: workspace.hpp.
#pragma once

#include <kernels/cuda/workspace.hpp>

#include <cstdint>

namespace penstock::kernels::cuda {

// momentum[indices[j]] = 0 for `count` indices, which must be below n and different.
[[nodiscard]] int32_t mask_entries(float* momentum, uint64_t n, const uint32_t* indices,
                                   uint64_t count, void* stream) noexcept;

}  // namespace penstock::kernels::cuda

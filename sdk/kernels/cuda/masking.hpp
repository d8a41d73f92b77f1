// Momentum factor masking on a device (Deep Gradient Compression, section 3.2): entries of the
// momentum become zero where they were sent. Contract: workspace.hpp.
#pragma once

#include <kernels/cuda/workspace.hpp>

#include <cstdint>

namespace penstock::kernels::cuda {

// momentum[indices[j]] = 0 for `count` indices, each below n and no two alike.
[[nodiscard]] int32_t mask_entries(float* momentum, uint64_t n, const uint32_t* indices,
                                   uint64_t count, void* stream) noexcept;

}  // namespace penstock::kernels::cuda

// Running averages on a device, for a memory that compresses a copy of its state. Contract:
// workspace.hpp.
#pragma once

#include <kernels/cuda/workspace.hpp>

#include <cstdint>

namespace penstock::kernels::cuda {

struct RunningAverage {
  float* average;
  const float* grad;
  float* copy;
  float old_share;
  float new_share;
  float unscale;
};

// average[i] = copy[i] = old_share * average[i] + new_share * (grad[i] * unscale), for n elements.
// The three arrays are device memory and must not overlap.
[[nodiscard]] int32_t advance_average(const RunningAverage& of, uint64_t n, void* stream) noexcept;

}  // namespace penstock::kernels::cuda

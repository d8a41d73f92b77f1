// A threshold that falls until enough entries reach it, on a device: the correction of Deep
// Gradient Compression, for all falls in one pass. Contract: workspace.hpp.
#pragma once

#include <cstdint>

namespace penstock::kernels::cuda {

inline constexpr uint32_t kMostFalls = 32;

// Scratch in device memory.
struct Falling {
  uint64_t counts[kMostFalls + 1];
  float thresholds[kMostFalls + 1];  // the others fall from the first
  float found;
};

// thresholds[j + 1] = thresholds[j] * factor, `falls` times; found = the first threshold that at
// least `enough` entries of x[n] reach, else the last threshold. All entries reach a threshold of
// zero.
[[nodiscard]] int32_t fall(const float* x, uint64_t n, float factor, uint32_t falls, double enough,
                           Falling* s, void* stream) noexcept;

}  // namespace penstock::kernels::cuda

// A threshold that falls until enough entries reach it, on a device: the correction of Deep
// Gradient Compression, for all falls in one pass. Contract: workspace.hpp.
#pragma once

#include <cstdint>

namespace penstock::kernels::cuda {

inline constexpr uint32_t kMostFalls = 32;

// In device memory.
struct Falling {
  uint64_t counts[kMostFalls + 1];
  float thresholds[kMostFalls + 1];  // the first is what the others fall from
  float found;
};

// thresholds[j + 1] = thresholds[j] * factor, `falls` times; found = the first that at least
// `enough` entries of x[n] reach, else the last. A threshold of zero all entries reach.
[[nodiscard]] int32_t fall(const float* x, uint64_t n, float factor, uint32_t falls, double enough,
                           Falling* s, void* stream) noexcept;

}  // namespace penstock::kernels::cuda

// Two bits for an element: whether it reaches a threshold, or its negative. The compressor tbq and
// its kernels use them, on the CPU and on CUDA.
#pragma once

#include <cstdint>

namespace penstock::kernels {

enum ThresholdCode : uint8_t {
  kBelowThreshold = 0,
  kPlusThreshold = 1,
  kMinusThreshold = 2,
  kNoThresholdCode = 3
};

[[gnu::always_inline]] constexpr uint8_t threshold_code(float x, float threshold) {
  return static_cast<uint8_t>((x >= threshold ? kPlusThreshold : kBelowThreshold) |
                              (x <= -threshold ? kMinusThreshold : kBelowThreshold));
}

// The factor of the threshold in the value of a code: 1, 0 or -1.
[[gnu::always_inline]] constexpr float threshold_times(uint32_t code) {
  const auto bits = static_cast<int32_t>(code);
  return static_cast<float>((bits & kPlusThreshold) - (bits >> 1));
}

}  // namespace penstock::kernels

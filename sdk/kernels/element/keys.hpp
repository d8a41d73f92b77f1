// Magnitudes as integers that are in their order: what every selection compares. Internal to the
// kernels, for the CPU and CUDA alike.
#pragma once

#include <bit>
#include <cstdint>

namespace penstock::kernels {

inline constexpr uint32_t kInfinityKey = 0x7f800000u;

// Magnitudes ordered as integers; NaN counts as zero.
constexpr uint32_t magnitude_key(float value) {
  const uint32_t key = std::bit_cast<uint32_t>(value) & 0x7fffffffu;
  return key > kInfinityKey ? 0 : key;
}

// The key that stands for a threshold: 1, which all but zeros reach, for one that is not positive.
// Compared by bits, as subnormal thresholds vanish in comparisons of floats where they are flushed
// to zero.
constexpr uint32_t threshold_key(float threshold) {
  const uint32_t bits = std::bit_cast<uint32_t>(threshold);
  if ((bits & 0x7fffffffu) > kInfinityKey) return kInfinityKey + 1;  // NaN: nothing passes
  const bool negative = (bits & 0x80000000u) != 0;
  return negative || bits == 0 ? 1 : bits;
}

}  // namespace penstock::kernels

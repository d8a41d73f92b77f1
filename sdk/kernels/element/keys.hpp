// Magnitudes as integers with the order of the magnitudes; every selection compares these integers.
// Internal to the kernels, for both the CPU and CUDA.
#pragma once

#include <bit>
#include <cstdint>

namespace penstock::kernels {

inline constexpr uint32_t kInfinityKey = 0x7f800000u;

// The key of a value's magnitude; NaN counts as zero.
constexpr uint32_t magnitude_key(float value) {
  const uint32_t key = std::bit_cast<uint32_t>(value) & 0x7fffffffu;
  return key > kInfinityKey ? 0 : key;
}

// The key of a threshold. A threshold that is not positive has key 1, which all entries but zeros
// reach. Keys compare bits, because subnormal thresholds would vanish in comparisons of floats if
// they are flushed to zero.
constexpr uint32_t threshold_key(float threshold) {
  const uint32_t bits = std::bit_cast<uint32_t>(threshold);
  if ((bits & 0x7fffffffu) > kInfinityKey) return kInfinityKey + 1;  // NaN: no entry passes
  const bool negative = (bits & 0x80000000u) != 0;
  return negative || bits == 0 ? 1 : bits;
}

}  // namespace penstock::kernels

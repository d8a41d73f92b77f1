// Compaction: the entries of an array that reach a threshold, in order. Internal to the kernels.
#pragma once

#include <kernels/code_path.hpp>

#include <bit>
#include <cstdint>

namespace penstock::kernels {

inline constexpr uint32_t kInfinityKey = 0x7f800000u;
// Writers may leave that many undefined entries behind the capacity.
inline constexpr uint64_t kCompactPad = 64;

// Magnitudes ordered as integers; NaN counts as zero.
inline uint32_t magnitude_key(float value) {
  const uint32_t key = std::bit_cast<uint32_t>(value) & 0x7fffffffu;
  return key > kInfinityKey ? 0 : key;
}

// The key of what a compaction appended, which is never NaN.
inline uint32_t key_of_bits(uint32_t bits) {
  return bits & 0x7fffffffu;
}

// The key that stands for a threshold: 1, which all but zeros reach, for one that is not positive.
// Compared by bits, as subnormal thresholds vanish in comparisons of floats where they are flushed
// to zero.
inline uint32_t threshold_key(float threshold) {
  const uint32_t bits = std::bit_cast<uint32_t>(threshold);
  if ((bits & 0x7fffffffu) > kInfinityKey) return kInfinityKey + 1;  // NaN: nothing passes
  const bool negative = (bits & 0x80000000u) != 0;
  return negative || bits == 0 ? 1 : bits;
}

// Appends (offset + i, bits of x[i]) for every i in [0, n) whose key is at least `threshold` >= 1,
// behind the `count` entries there are, and returns the new count. Stops early, with a result above
// `capacity`, when more would be written; both arrays have room for capacity + kCompactPad.
using Compact = uint64_t (*)(const float* x, uint64_t n, uint32_t offset, uint32_t threshold,
                             uint32_t* indices, uint32_t* bits, uint64_t count, uint64_t capacity);

Compact compact_on(CodePath path) noexcept;

}  // namespace penstock::kernels

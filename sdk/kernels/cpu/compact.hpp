// Compaction collects the entries of an array that reach a threshold, in order. Internal to the
// kernels.
#pragma once

#include <kernels/code_path.hpp>
#include <kernels/element/keys.hpp>

#include <cstdint>

namespace penstock::kernels {

// Writers may write this many undefined entries behind the capacity.
inline constexpr uint64_t kCompactPad = 64;

// The key of an entry that a compaction appended; it is never a NaN.
inline uint32_t key_of_bits(uint32_t bits) {
  return bits & 0x7fffffffu;
}

// The entries of an array may lie in runs of this many, `stride` floats from one run to the next.
inline constexpr uint64_t kCompactRun = 64;

// Appends (offset + i, bits of entry i) for every i in [0, n) whose key is at least `threshold` >=
// 1, behind the existing `count` entries, and returns the new count. If the count would exceed
// `capacity`, it stops early with a result above `capacity`. Both arrays must have room for
// capacity + kCompactPad. With another stride than kCompactRun, n is a multiple of kCompactRun.
using Compact = uint64_t (*)(const float* x, uint64_t n, uint64_t stride, uint32_t offset,
                             uint32_t threshold, uint32_t* indices, uint32_t* bits, uint64_t count,
                             uint64_t capacity);

Compact compact_on(CodePath path) noexcept;

// Moves the collected entries whose key is at least `threshold` to the front, in order, and returns
// their number.
using Keep = uint64_t (*)(uint32_t* indices, uint32_t* bits, uint64_t count, uint32_t threshold);

Keep keep_on(CodePath path) noexcept;

// Drops all but the first `ties` entries whose key is equal to `threshold`; returns the number that
// stays.
uint64_t drop_later_ties(uint32_t* indices, uint32_t* bits, uint64_t count, uint32_t threshold,
                         uint64_t ties) noexcept;

// The number of keys that are at least `threshold` >= 1. Behind the `count` entries there must be
// zeros up to the next multiple of 16.
using Reach = uint64_t (*)(const uint32_t* bits, uint64_t count, uint32_t threshold);

Reach reach_on(CodePath path) noexcept;

}  // namespace penstock::kernels

// Whether values are finite, on the CPU: one pass for the largest magnitude.
#pragma once

#include <kernels/on_code_path.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>

namespace penstock::kernels {

// The bits of infinity. Without their sign, the bits of a value that is not finite are at least
// these.
inline constexpr uint32_t kInfinityBits = 0x7f800000;

// [any] The bits of the largest magnitude of values[count], 0 for none.
inline uint32_t largest_magnitude(const float* values, uint64_t count, CodePath path) noexcept {
  constexpr int32_t kMagnitude = 0x7fffffff;
  return on_code_path(path, [=]() PENSTOCK_LOOP {
    int32_t largest = 0;  // signed, because every path has a vector compare for it
    for (uint64_t i = 0; i < count; ++i)
      largest = std::max(largest, std::bit_cast<int32_t>(values[i]) & kMagnitude);
    return static_cast<uint32_t>(largest);
  });
}

// [any] Whether all of values[count] are finite.
inline bool all_finite(const float* values, uint64_t count, CodePath path) noexcept {
  return largest_magnitude(values, count, path) < kInfinityBits;
}

}  // namespace penstock::kernels

// The scales of narrow types, one value in 8 bits, and the limits of types (narrow_values.hpp).
// Internal to the kernels, for both the CPU and CUDA.
#pragma once

#include <bit>
#include <cfloat>
#include <cstdint>

namespace penstock::kernels {

inline constexpr float kLargestCode = 127;
inline constexpr uint32_t kHalfInfinity = 0x7c00;
inline constexpr uint32_t kBfloat16Infinity = 0x7f80;
// The code of the largest float16 value is at least 2^14: this leaves room to round up.
inline constexpr int kExponentOfCodes = 14;
// The exponent field of 2^112, the largest power whose product with 65504 is a float.
inline constexpr int kMostHalfScale = 127 + 112;

// The scale of int8 values; see value_scale of narrow_values.hpp.
constexpr float scale_that_reaches(float largest) {
  const float scale = (FLT_MAX < largest ? FLT_MAX : largest) / kLargestCode;
  if (scale * kLargestCode <= FLT_MAX) return scale;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(scale) - 1);  // the next smaller float
}

// The scale of float16 values; see value_scale of narrow_values.hpp. It takes only the exponent of
// `largest`; a subnormal number has the exponent field 0, and so gets the smallest scale.
constexpr float power_of_two_below(float largest) {
  const auto exponent = static_cast<int>(std::bit_cast<uint32_t>(largest) >> 23);
  int field = exponent - kExponentOfCodes;
  field = field < 1 ? 1 : field;
  field = kMostHalfScale < field ? kMostHalfScale : field;
  return std::bit_cast<float>(static_cast<uint32_t>(field) << 23);
}

// 1 / scale for a power of two that is, like its inverse, a normal float.
[[gnu::always_inline]] constexpr float inverse_power(float scale) {
  return std::bit_cast<float>((uint32_t{254} << 23) - std::bit_cast<uint32_t>(scale));
}

// The multiple of `scale` nearest to `value`, ties to even, within kLargestCode; 0 for NaN. `scale`
// must not be 0.
[[gnu::always_inline]] constexpr float int8_code(float value, float scale) {
  constexpr float kRounder = 12582912.0f;  // adding and subtracting it rounds |x| < 2^22
  float code = value / scale;
  code = code == code ? code : 0;
  code = code < -kLargestCode ? -kLargestCode : code;
  code = kLargestCode < code ? kLargestCode : code;
  return (code + kRounder) - kRounder;
}

// Infinity becomes the largest finite number of the type, which is the number below it.
constexpr uint16_t finite_bits(uint32_t bits, uint32_t infinity) {
  return static_cast<uint16_t>(bits - ((bits & 0x7fffu) == infinity ? 1 : 0));
}

}  // namespace penstock::kernels

// Conversion of the bits of a float to the bits of 16-bit floats and back (convert.hpp). Internal
// to the kernels, for both the CPU and CUDA.
#pragma once

#include <bit>
#include <cstdint>

namespace penstock::kernels {

// A NaN keeps its sign and the upper bits of its payload; the quiet bit is set, as in F16C.
constexpr uint32_t half_bits(uint32_t bits) {
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and above round to infinity
  if (magnitude >= 0x38800000u) {                       // normal: at least 2^-14
    const uint32_t rebiased = magnitude - 0x38000000u;
    return sign | ((rebiased + 0xfffu + ((rebiased >> 13) & 1u)) >> 13);
  }
  if (magnitude <= 0x33000000u) return sign;  // 2^-25 ties to zero
  // Subnormal: the value in units of 2^-24, rounded to nearest even.
  const uint32_t shift = 126u - (magnitude >> 23);
  const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  const uint32_t half_unit = 1u << (shift - 1);
  const uint32_t odd = (mantissa >> shift) & 1u;
  return sign | ((mantissa + half_unit - 1u + odd) >> shift);
}

constexpr uint32_t float_bits(uint32_t half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t mantissa = half & 0x3ffu;
  if (exponent == 31) return sign | 0x7f800000u | (mantissa << 13) | (mantissa ? 0x400000u : 0u);
  if (exponent != 0) return sign | ((exponent + 112u) << 23) | (mantissa << 13);
  if (mantissa == 0) return sign;
  const uint32_t shift = static_cast<uint32_t>(std::countl_zero(mantissa)) - 21u;
  return sign | ((113u - shift) << 23) | ((mantissa << (shift + 13u)) & 0x7fffffu);
}

[[gnu::always_inline]] constexpr uint16_t bfloat16_bits(uint32_t bits) {
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40u;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

}  // namespace penstock::kernels

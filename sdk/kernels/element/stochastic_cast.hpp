// The stochastic cast of one number (stochastic_cast.hpp): bits of a float to bits of a 16-bit
// type. Internal to the kernels.
#pragma once

#include <bit>
#include <cstdint>

namespace penstock::kernels {

// `yes` where `condition` holds, else `no`. Masks and not branches, so that compilers make vectors
// of loops over these functions.
[[gnu::always_inline]] constexpr uint32_t chosen(bool condition, uint32_t yes, uint32_t no) {
  const uint32_t mask = 0u - static_cast<uint32_t>(condition);
  return (yes & mask) | (no & ~mask);
}

[[gnu::always_inline]] constexpr uint32_t half_bits_by_chance(uint32_t bits, uint32_t word) {
  constexpr uint32_t kLargest = 0x477fe000u, kMiddle = 0x477ff000u;  // 65504 and 65520
  constexpr uint32_t kSmallestNormal = 0x38800000u;                  // 2^-14
  constexpr uint32_t kInfinity = 0x7f800000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t normal = (magnitude - 0x38000000u + (word >> 19)) >> 13;
  // Below the smallest normal number, numbers of the type are multiples of 2^-24.
  const bool is_small = magnitude < kSmallestNormal;
  const uint32_t small = chosen(is_small, magnitude, 0);
  const float units = std::bit_cast<float>(small) * 0x1p24f;
  const auto below = static_cast<int32_t>(units);
  const auto fraction =
      static_cast<uint32_t>(static_cast<int32_t>((units - static_cast<float>(below)) * 0x1p31f));
  const uint32_t subnormal = static_cast<uint32_t>(below) + ((fraction + (word >> 1)) >> 31);
  const uint32_t finite = chosen(is_small, subnormal, normal);
  const uint32_t large = chosen(magnitude < kMiddle, 0x7bffu, 0x7c00u);
  const uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  const uint32_t rounded = chosen(magnitude <= kLargest, finite, large);
  return (bits >> 16 & 0x8000u) | chosen(magnitude <= kInfinity, rounded, nan);
}

[[gnu::always_inline]] constexpr uint32_t bfloat16_bits_by_chance(uint32_t bits, uint32_t word) {
  constexpr uint32_t kLargest = 0x7f7f0000u, kMiddle = 0x7f7f8000u, kInfinity = 0x7f800000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t finite = (magnitude + (word >> 16)) >> 16;
  const uint32_t large = chosen(magnitude < kMiddle, kLargest >> 16, kInfinity >> 16);
  const uint32_t nan = (magnitude >> 16) | 0x40u;
  const uint32_t rounded = chosen(magnitude <= kLargest, finite, large);
  return (bits >> 16 & 0x8000u) | chosen(magnitude <= kInfinity, rounded, nan);
}

}  // namespace penstock::kernels

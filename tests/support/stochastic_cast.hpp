// Stochastic casts from their definition, one value at a time in double: the oracle of
// sdk/kernels/stochastic_cast.hpp.
#pragma once

#include <cmath>
#include <cstdint>
#include <support/half.hpp>

namespace penstock::test {

// A 16-bit type: nearest rounding, value of bits, smallest normal number, largest number, and the
// number of fraction bits.
struct ChanceType {
  uint16_t (*to_bits)(float);
  float (*from_bits)(uint16_t);
  double smallest_normal;
  double largest;
  int fraction_bits;
};
inline constexpr ChanceType kChanceHalf{to_float16, from_float16, 0x1p-14, 65504, 10};
inline constexpr ChanceType kChanceBfloat16{to_bfloat16, from_bfloat16, 0x1p-126, 0x1.fep127, 7};

// The distance of neighbours at magnitude `x`, a number of at most the largest.
inline double unit_at(const ChanceType& type, double x) {
  if (x < type.smallest_normal) return std::ldexp(type.smallest_normal, -type.fraction_bits);
  return std::ldexp(1.0, std::ilogb(x) - type.fraction_bits);
}

// The value to which `value` is cast with a random word: the neighbour away from zero if
// fraction + draw >= 1. The draw has the upper bits of the word: as many bits as a float has behind
// the type's last bit, or 31 below the smallest normal float16.
inline float cast_by_chance(const ChanceType& type, float value, uint32_t word) {
  const double x = std::fabs(double{value});
  if (!(x <= type.largest)) return type.from_bits(type.to_bits(value));
  const double unit = unit_at(type, x), below = std::floor(x / unit);
  const bool fixed = type.fraction_bits == 10 && x < type.smallest_normal;
  const int bits = fixed ? 31 : 23 - type.fraction_bits;
  const double steps = std::ldexp(1.0, bits);
  const double fraction = std::floor((x / unit - below) * steps);
  const bool away = fraction + std::floor(word / std::ldexp(1.0, 32 - bits)) >= steps;
  return static_cast<float>(std::copysign((below + (away ? 1 : 0)) * unit, double{value}));
}

}  // namespace penstock::test

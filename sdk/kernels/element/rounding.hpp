// Stochastic rounding of one number (stochastic.hpp). Internal to the kernels, for both the CPU and
// CUDA.
#pragma once

#include <kernels/stochastic.hpp>

#include <bit>
#include <cfloat>
#include <cstdint>

namespace penstock::kernels {

[[gnu::always_inline]] constexpr float magnitude(float x) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0x7FFFFFFFu);
}

// x / step * units, computed as x * boost * factor. The boost, a power of two, keeps the factor
// finite if the step is so small that its inverse is not a float.
struct Inverse {
  float boost;
  float factor;
};
constexpr Inverse inverse_of(float step, float units) {
  const float boost = step < 0x1p-96f ? 0x1p96f : 1.0f;
  return {boost, units / (step * boost)};
}

// The fixed-point units of levels and choices.
inline constexpr float kLevelUnits = 0x1p16f;
inline constexpr float kChoiceUnits = 0x1p24f;

// The level of x with its sign, at most `most` in magnitude; `inverse` is inverse_of(step,
// kLevelUnits).
[[gnu::always_inline]] constexpr int32_t signed_level(float x, Inverse inverse, int32_t most,
                                                      uint32_t word) {
  const float scaled = magnitude(x) * inverse.boost * inverse.factor;
  const int32_t fixed = static_cast<int32_t>(scaled + 0.5f);
  int32_t level = (fixed + static_cast<int32_t>(word >> 16)) >> 16;
  level = level < most ? level : most;
  const int32_t sign = std::bit_cast<int32_t>(x) >> 31;
  return (level ^ sign) - sign;
}

// The code of the power of two to which x is rounded, and the power of a code.
[[gnu::always_inline]] constexpr int32_t power_code(float x, int32_t base, uint32_t word) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const auto rounded = static_cast<int32_t>(((bits & 0x7FFFFFFFu) + (word >> 9)) >> 23);
  const int32_t above = (rounded < 254 ? rounded : 254) - base;
  const int32_t code = above | static_cast<int32_t>(bits >> 31 << 7);
  return above > 0 ? code : 0;
}
[[gnu::always_inline]] constexpr float power_of_code(uint32_t code, uint32_t base) {
  const uint32_t above = code & 127u;
  const uint32_t bits = (code & 128u) << 24 | (above + base) << 23;
  return std::bit_cast<float>(above != 0 ? bits : 0u);
}

// power_base of stochastic.hpp.
constexpr uint32_t base_of_powers(float largest) {
  const uint32_t above = (std::bit_cast<uint32_t>(largest) >> 23) + 1;
  const uint32_t top = above < 254u ? above : 254u;
  return top > kPowerCodes ? top - kPowerCodes : 0;
}

// The neighbours of a positive finite float.
constexpr float next_above(float x) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(x) + 1);
}
constexpr float next_below(float x) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(x) - 1);
}

// grid_step of stochastic.hpp.
constexpr float step_that_reaches(double reach, uint32_t levels) {
  if (!(reach > 0)) return 0;
  // The step is rounded down if the product would overflow, else up, so that levels * step covers
  // the reach.
  const float most = next_below(FLT_MAX / static_cast<float>(levels));
  const double exact = reach / levels;
  if (exact >= most) return most;
  float step = static_cast<float>(exact);
  step = step < FLT_TRUE_MIN ? FLT_TRUE_MIN : step;
  if (double{step} * levels < reach) step = next_above(step);
  return step;
}

}  // namespace penstock::kernels

// Equally spaced levels between the least and the greatest of some numbers. The compressor maxmin
// and its kernels use them, on the CPU and on CUDA.
#pragma once

#include <bit>
#include <cstdint>

namespace penstock::kernels {

// The least and the greatest of some numbers. It starts as the range of no numbers, so that the
// first number becomes both.
struct ValueRange {
  float low = std::bit_cast<float>(0x7f800000u);
  float high = std::bit_cast<float>(0xff800000u);
};

// Level q is low + q * step, in float.
struct RangeLevels {
  float low;
  float step;
};

[[gnu::always_inline]] constexpr float level_value(uint8_t code, float low, float step) {
  return low + static_cast<float>(code) * step;
}

constexpr bool is_finite(float x) {
  return (std::bit_cast<uint32_t>(x) & 0x7f800000u) != 0x7f800000u;
}

// Whether all n_steps + 1 levels are finite and ascend. Levels of levels_of_range always do; levels
// that a peer sent may not.
constexpr bool usable(const RangeLevels& levels, uint32_t n_steps) {
  const float reach = static_cast<float>(n_steps) * levels.step;
  return is_finite(levels.low) && levels.step >= 0 && is_finite(reach) &&
         is_finite(levels.low + reach);
}

// n_steps steps that cover the range, with all levels finite. Ranges wider than the largest float
// are covered from below as far as floats go. A range that is too narrow for a step has step 0.
// Zeros lose their sign, because the order of the search decides which of two zeros is found first.
constexpr RangeLevels levels_of_range(const ValueRange& range, uint32_t n_steps) {
  constexpr float kWidest = 0x1.fffp127f;
  const float low = range.low + 0.0f;
  const float width = (range.high + 0.0f) - low;
  RangeLevels levels{low, (width < kWidest ? width : kWidest) / static_cast<float>(n_steps)};
  // The last level may lie a rounding error above the greatest element, and so beyond all floats.
  if (!usable(levels, n_steps)) levels.step *= 1 - 0x1p-20f;
  return levels;
}

// The level below x, or the level above x if the distance from the lower level to x, as a share of
// the step, is greater than `draw`. At most `top`, the number of steps. `step` must not be 0.
[[gnu::always_inline]] constexpr int32_t level_near(float x, float low, float step, float top,
                                                    float draw) {
  const float wanted = (x - low) / step;
  const float at = wanted < top ? wanted : top;  // also if the difference overflows
  const auto below = static_cast<int32_t>(at);
  const float share = at - static_cast<float>(below);
  return below + (draw < share ? 1 : 0);
}

}  // namespace penstock::kernels

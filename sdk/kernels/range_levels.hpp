// Equally spaced levels between the least and the greatest of some numbers. For the compressor
// maxmin and its kernels, on the CPU and CUDA alike.
#pragma once

#include <bit>
#include <cstdint>

namespace penstock::kernels {

// The least and the greatest; of nothing, so that any number is both.
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

// Whether all of n_steps + 1 levels are finite and ascend: what levels_of_range gives, and what a
// peer may not have sent.
constexpr bool usable(const RangeLevels& levels, uint32_t n_steps) {
  const float reach = static_cast<float>(n_steps) * levels.step;
  return is_finite(levels.low) && levels.step >= 0 && is_finite(reach) &&
         is_finite(levels.low + reach);
}

// n_steps steps that cover the range, all levels finite. Ranges wider than the largest float are
// covered from below as far as floats go. A range too narrow for a step of its own has step 0.
// Zeros lose their sign: which of two of them is found first depends on who looks.
constexpr RangeLevels levels_of_range(const ValueRange& range, uint32_t n_steps) {
  constexpr float kWidest = 0x1.fffp127f;
  const float low = range.low + 0.0f;
  const float width = (range.high + 0.0f) - low;
  RangeLevels levels{low, (width < kWidest ? width : kWidest) / static_cast<float>(n_steps)};
  // The last level may lie a rounding above the greatest element, and that beyond all floats.
  if (!usable(levels, n_steps)) levels.step *= 1 - 0x1p-20f;
  return levels;
}

// The level below x, or the one above where the share of the step that x lies over the lower level
// is greater than `draw`; at most `top`, the number of steps. `step` is not 0.
[[gnu::always_inline]] constexpr int32_t level_near(float x, float low, float step, float top,
                                                    float draw) {
  const float wanted = (x - low) / step;
  const float at = wanted < top ? wanted : top;  // also where the difference has no float
  const auto below = static_cast<int32_t>(at);
  const float share = at - static_cast<float>(below);
  return below + (draw < share ? 1 : 0);
}

}  // namespace penstock::kernels

// Equally spaced levels: the range of a block, rounding to levels, and back. The same bits on every
// code path.
#pragma once

#include <kernels/code_path.hpp>

#include <cmath>
#include <cstdint>

namespace penstock::maxmin {

struct Range {
  float low;
  float high;
};

// Level q is low + q * step, in float.
struct Levels {
  float low;
  float step;
};

// The least and the greatest of x[count], count > 0, all finite. [any]
Range range_of(const float* x, uint64_t count, kernels::CodePath path) noexcept;

// n_steps steps that cover the range, all levels finite. Ranges wider than the largest float are
// covered from below as far as floats go. A range too narrow for a step of its own has step 0.
// [any]
Levels levels_of(const Range& range, uint32_t n_steps) noexcept;

// What levels_of never gives, a peer may send. [any]
inline bool usable(const Levels& levels, uint32_t n_steps) noexcept {
  return std::isfinite(levels.low) && levels.step >= 0 &&
         std::isfinite(static_cast<float>(n_steps) * levels.step) &&
         std::isfinite(levels.low + static_cast<float>(n_steps) * levels.step);
}

// codes[i] = the level below x[i], or the one above where the share of the step that x[i] lies over
// the lower level is greater than draws[i]; at most n_steps. [any]
void round_to_levels(const float* x, uint64_t count, const Levels& levels, uint32_t n_steps,
                     const float* draws, uint8_t* codes, kernels::CodePath path) noexcept;

// out[i] += level of codes[i]; x[i] -= level of codes[i]. [any]
void add_levels(const uint8_t* codes, uint64_t count, const Levels& levels, float* out,
                kernels::CodePath path) noexcept;
void subtract_levels(const uint8_t* codes, uint64_t count, const Levels& levels, float* x,
                     kernels::CodePath path) noexcept;

}  // namespace penstock::maxmin

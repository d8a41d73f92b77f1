// Stochastic rounding: each number is replaced by one of its two neighbours on a grid, at random,
// so that the expectation is the number itself. The random word is a function of (key, element), so
// neither a cut of a gradient nor the code path changes a bit. Zeros stay zeros on all grids. All
// functions are [any]; `take_out` subtracts from values[i] exactly its rounded value.
#pragma once

#include <kernels/random_uniform.hpp>

#include <cstdint>

namespace penstock::kernels {

// The numbers from which the scale of a grid is made. Sums are in double: element i goes to lane i
// mod 16, and lanes are joined by halving.
struct Moments {
  double sum;
  double sum_of_squares;
  float largest;  // magnitude
};
Moments moments(const float* values, uint64_t numel, CodePath path) noexcept;

// The largest magnitude; 0 if there are no elements.
float largest_magnitude(const float* values, uint64_t numel, CodePath path) noexcept;

// ---- Equal steps: QSGD ----

// The step of a grid of `levels` steps that reaches `reach`: at least reach / levels, at least the
// smallest float, and such that levels * step is finite. 0 for a reach of 0. `reach` may exceed the
// largest float.
float grid_step(double reach, uint32_t levels) noexcept;

// codes[i] = level of values[i], in two's complement of 8 bits:
//   fixed = int(min(|x| / step, levels) * 2^16 + 1/2),   level = (fixed + word >> 16) >> 16
// with the sign of x, where `word` is the random word of element first + i. So the expectation of
// level * step is x, to 2^-17 of a step, if |x| <= levels * step. `levels` is at most 127.
struct Grid {
  float step;
  uint32_t levels;
};
void round_to_levels(float* values, uint64_t numel, const Grid& grid, RandomKey key, uint64_t first,
                     bool take_out, uint8_t* codes, CodePath path) noexcept;

// out[i] = (clear ? 0 : out[i]) + level * step.
void add_levels(const uint8_t* codes, uint64_t numel, float step, bool clear, float* out,
                CodePath path) noexcept;

// ---- All or nothing: TernGrad ----

// values[i] becomes sign(x) * scale with probability min(|x| / scale, 1), else 0. Writes the planes
// of negative and of nonzero results, as in sign.hpp (bits behind the last element are zero):
//   nonzero = int(min(|x| / scale, 1) * 2^24) > word >> 8
// `scale` is not 0; `first` is a multiple of 64.
void round_to_signs(float* values, uint64_t numel, float scale, RandomKey key, uint64_t first,
                    bool take_out, uint64_t* negative, uint64_t* nonzero, CodePath path) noexcept;

// ---- Powers of two: natural compression ----

// Exponents are the exponent bits of a float: 1 to 254 for 2^-126 to 2^127. A code holds the sign
// in bit 7 and exponent - base in the other bits, or 0 for zero.
inline constexpr uint32_t kPowerCodes = 127;

// The base that leaves room for every power to which a number up to `largest` may be rounded.
uint32_t power_base(float largest) noexcept;

// |x| = 2^e (1 + m) becomes 2^(e+1) with probability m, else 2^e; a number below 2^-126 becomes
// 2^-126 or 0. A number that is rounded to an exponent up to `base` becomes 0, and 2^127 is not
// exceeded.
//   exponent = (bits of |x| + word >> 9) >> 23
void round_to_powers(float* values, uint64_t numel, uint32_t base, RandomKey key, uint64_t first,
                     bool take_out, uint8_t* codes, CodePath path) noexcept;

// out[i] = (clear ? 0 : out[i]) + the power that code i stands for. `base` is at most 127.
void add_powers(const uint8_t* codes, uint64_t numel, uint32_t base, bool clear, float* out,
                CodePath path) noexcept;

}  // namespace penstock::kernels

// Sums over an array with one fixed reduction tree: element i goes to lane i mod 16, lanes are
// joined by halving. Every code path and alignment gives equal bits, so all ranks may base
// decisions on a result.
#pragma once

#include <kernels/code_path.hpp>

#include <cstdint>

namespace penstock::kernels {

// Sum of x[i]^2, accumulated in double: squares of floats are exact there and cannot overflow.
// [any]
double sum_of_squares(const float* x, uint64_t n, CodePath path) noexcept;

// Sum of |x[i]|, accumulated in double. [any]
double sum_of_magnitudes(const float* x, uint64_t n, CodePath path) noexcept;

}  // namespace penstock::kernels

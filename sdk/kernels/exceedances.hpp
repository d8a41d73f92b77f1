// By how much the magnitudes of an array exceed a threshold: what SIDCo fits the tail from.
#pragma once

#include <kernels/code_path.hpp>
#include <kernels/fold.hpp>

#include <cstdint>

namespace penstock::kernels {

struct Exceedances {
  double sum = 0;      // of |x| - threshold, over entries above it
  double squares = 0;  // of its square
  uint64_t count = 0;  // entries above it
};

// x[n] is finite, threshold >= 0. One pass; element i goes to lane i mod 16, in double, and lanes
// are joined by halving, so that every code path gives the same bits. With `fold`, whose work is x,
// x is compensated first, in the same pass. [any]
Exceedances exceedances(const float* x, uint64_t n, float threshold, CodePath path,
                        const Fold* fold = nullptr) noexcept;

}  // namespace penstock::kernels

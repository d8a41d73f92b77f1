// Sums of the amounts by which the magnitudes of an array exceed a threshold. SIDCo fits the tail
// from them.
#pragma once

#include <kernels/code_path.hpp>
#include <kernels/fold.hpp>

#include <cstdint>

namespace penstock::kernels {

struct Exceedances {
  double sum = 0;      // of |x| - threshold, over entries above the threshold
  double squares = 0;  // of (|x| - threshold)^2, over these entries
  uint64_t count = 0;  // entries above the threshold
};

// threshold >= 0. If a value of x[n] is not finite, the sums mean nothing. One pass; element i goes
// to lane i mod 16, in double, and lanes are joined by halving, so that every code path gives equal
// bits. If there is a `fold`, its work must be x; x is then compensated first, within this pass.
// [any]
Exceedances exceedances(const float* x, uint64_t n, float threshold, CodePath path,
                        const Fold* fold = nullptr) noexcept;

}  // namespace penstock::kernels

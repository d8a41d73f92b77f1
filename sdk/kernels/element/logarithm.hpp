// The logarithm of a product of magnitudes (statistics.hpp): exponents are added as integers, and
// mantissas in [1, 2) are multiplied. Internal to the kernels, for both the CPU and CUDA.
#pragma once

#include <bit>
#include <cstdint>

namespace penstock::kernels {

inline constexpr double kNaturalLogOfTwo = 0.6931471805599453;

// ln of m in [1, 2), by the series of the inverse hyperbolic tangent, because the bits of std::log
// may differ between processors.
constexpr double log_of_mantissa(double m) {
  const double s = (m - 1) / (m + 1);
  double sum = 0;
  for (int power = 35; power > 0; power -= 2) sum = sum * s * s + 1.0 / power;
  return 2 * s * sum;
}

}  // namespace penstock::kernels

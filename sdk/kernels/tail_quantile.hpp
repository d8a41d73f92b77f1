// Quantiles of tails: the magnitude that a given share of the entries exceeds, if they follow a
// known law. They serve thresholds that a rank chooses for itself. The last bits depend on the C
// library (on a device, on CUDA's library), so no replicated state may depend on these functions.
// All functions are [any].
#pragma once

#include <kernels/on_both.hpp>

#include <algorithm>
#include <cmath>

namespace penstock::kernels {

// z with P(Z > z) = share for a standard normal Z, 0 < share < 1.
PENSTOCK_ON_BOTH inline double normal_tail_quantile(double share) {
  double low = -40, high = 40;
  for (int i = 0; i < 64; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(middle * 0.7071067811865476) > share ? low : high) = middle;
  }
  return (low + high) / 2;
}

// x with P(X > x) = share for an exponential law of this mean.
PENSTOCK_ON_BOTH inline double exponential_tail_quantile(double mean, double share) {
  return -mean * std::log(share);
}

// x with P(X > x) = share for the generalised Pareto law of this mean and variance. If its shape is
// too near to zero to divide by, the exponential law is used.
PENSTOCK_ON_BOTH inline double pareto_tail_quantile(double mean, double variance, double share) {
  if (!(variance > 1e-12 * mean * mean)) return mean;  // all magnitudes are equal
  const double ratio = mean * mean / variance;
  const double shape = (ratio - 1) / 2;
  const double scale = mean * (ratio + 1) / 2;
  if (std::fabs(shape) < 1e-6) return exponential_tail_quantile(scale, share);
  return scale * -std::expm1(shape * std::log(share)) / shape;
}

// ln Gamma(a), a > 0: Stirling's series, after the recurrence has raised a until the series is
// exact. The C library's function is not used because it writes to a global.
PENSTOCK_ON_BOTH inline double log_gamma(double a) {
  double shift = 0;
  for (; a < 10; a += 1) shift += std::log(a);
  const double inverse = 1 / a;
  const double square = inverse * inverse;
  const double series =
      inverse * (1.0 / 12 - square * (1.0 / 360 - square * (1.0 / 1260 - square / 1680)));
  return (a - 0.5) * std::log(a) - a + 0.9189385332046727 + series - shift;
}

// P(X > x) for a gamma law of shape a and scale 1, ln Gamma(a) given: a series for small x, a
// continued fraction (Lentz) for large x.
PENSTOCK_ON_BOTH inline double gamma_tail(double a, double log_gamma_of_a, double x) {
  if (x <= 0) return 1;
  const double front = std::exp(a * std::log(x) - x - log_gamma_of_a);
  if (x < a + 1) {
    double term = 1 / a, sum = term;
    for (int i = 1; i < 500 && term > sum * 1e-16; ++i) sum += term *= x / (a + i);
    return 1 - front * sum;
  }
  double b = x + 1 - a, c = 1e300, d = 1 / b, fraction = d;
  for (int i = 1; i < 500; ++i) {
    const double numerator = -i * (i - a);
    b += 2;
    d = 1 / std::max(1e-300, numerator * d + b);
    c = std::max(1e-300, b + numerator / c);
    fraction *= c * d;
    if (std::fabs(c * d - 1) < 1e-15) break;
  }
  return front * fraction;
}

// x with P(X > x) = share for a gamma law.
PENSTOCK_ON_BOTH inline double gamma_tail_quantile(double shape, double scale, double share) {
  const double constant = log_gamma(shape);
  double low = 0, high = shape + 1;
  while (gamma_tail(shape, constant, high) > share && high < 1e6) high *= 2;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (gamma_tail(shape, constant, middle) > share ? low : high) = middle;
  }
  return scale * (low + high) / 2;
}

}  // namespace penstock::kernels

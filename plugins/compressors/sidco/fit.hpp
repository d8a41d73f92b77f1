// The laws SIDCo fits to magnitudes, and what a stage asks of them.
#pragma once

#include <kernels/tail_quantile.hpp>

namespace sidco {

enum class Law { kExponential, kPareto, kGammaPareto, kGaussian };

// Magnitudes above an origin: of how many, and their moments. `mean_log` is of ln of the excess,
// for a gamma law.
struct Sample {
  double count = 0;
  double mean = 0;
  double variance = 0;
  double mean_log = 0;
  bool has_logs = false;
};

// The excess over the origin that `wanted` of the sample's entries reach, if they follow the law; 0
// where that is all of them, or where there are none.
inline double excess_for(Law law, const Sample& sample, double wanted) {
  namespace k = penstock::kernels;
  const double share = wanted / sample.count;
  if (!(share < 1) || !(sample.mean > 0)) return 0;
  if (law == Law::kExponential) return k::exponential_tail_quantile(sample.mean, share);
  if (law == Law::kGaussian)
    return std::max(0.0,
                    sample.mean + std::sqrt(sample.variance) * k::normal_tail_quantile(share / 2));
  if (law == Law::kGammaPareto && sample.has_logs) {
    // Minka's approximation of the likeliest shape.
    const double s = std::log(sample.mean) - sample.mean_log;
    if (s > 1e-9) {
      const double shape = (3 - s + std::sqrt((s - 3) * (s - 3) + 24 * s)) / (12 * s);
      return k::gamma_tail_quantile(shape, sample.mean / shape, share);
    }
  }
  return k::pareto_tail_quantile(sample.mean, sample.variance, share);
}

}  // namespace sidco

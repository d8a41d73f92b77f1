// Laws fitted to magnitudes, and the correction of a fit by the number of entries that its
// threshold let pass. Methods with a fitted threshold compute this between two passes over the
// data, on the CPU and on a device. All functions are [any].
#pragma once

#include <kernels/exceedances.hpp>
#include <kernels/statistics.hpp>
#include <kernels/tail_quantile.hpp>

namespace penstock::kernels {

// kGammaPareto: a gamma law if the sample has logarithms, else the generalised Pareto law.
enum class TailLaw : uint32_t { kExponential, kPareto, kGammaPareto, kGaussian };

// A sample of the magnitudes above an origin: its size, and the moments of the excess over the
// origin. `mean_log` is the mean of ln(excess), for a gamma law.
struct TailSample {
  double count = 0;
  double mean = 0;
  double variance = 0;
  double mean_log = 0;
  bool has_logs = false;
};

PENSTOCK_ON_BOTH inline TailSample sample_of(uint64_t n, double sum, double squares) {
  if (n == 0) return {};
  const auto count = static_cast<double>(n);
  const double mean = sum / count;
  return {count, mean, std::max(0.0, squares / count - mean * mean), 0, false};
}
PENSTOCK_ON_BOTH inline TailSample sample_of(const Exceedances& facts) {
  return sample_of(facts.count, facts.sum, facts.squares);
}
// The sample of all entries that are not zero.
PENSTOCK_ON_BOTH inline TailSample sample_of(const Statistics& facts, bool has_logs) {
  TailSample sample = sample_of(facts.nonzero, facts.sum_of_magnitudes, facts.sum_of_squares);
  if (!has_logs || facts.nonzero == 0) return sample;
  sample.mean_log = facts.sum_of_logs / sample.count;
  sample.has_logs = true;
  return sample;
}

// The excess over the origin that `wanted` of the sample's entries reach, if they follow the law; 0
// if all entries are wanted, or if the sample is empty.
PENSTOCK_ON_BOTH inline double excess_for(TailLaw law, const TailSample& sample, double wanted) {
  const double share = wanted / sample.count;
  if (!(share < 1) || !(sample.mean > 0)) return 0;
  if (law == TailLaw::kExponential) return exponential_tail_quantile(sample.mean, share);
  if (law == TailLaw::kGaussian)
    return std::max(0.0,
                    sample.mean + std::sqrt(sample.variance) * normal_tail_quantile(share / 2));
  if (law == TailLaw::kGammaPareto && sample.has_logs) {
    // Minka's approximation of the likeliest shape.
    const double s = std::log(sample.mean) - sample.mean_log;
    if (s > 1e-9) {
      const double shape = (3 - s + std::sqrt((s - 3) * (s - 3) + 24 * s)) / (12 * s);
      return gamma_tail_quantile(shape, sample.mean / shape, share);
    }
  }
  return pareto_tail_quantile(sample.mean, sample.variance, share);
}

// A fitted threshold times `correction`, which is the right threshold / the fitted threshold of an
// earlier step; a correction of 0 is not known and changes nothing.
PENSTOCK_ON_BOTH inline float corrected(double fitted, float correction) {
  return static_cast<float>(fitted * (correction > 0 ? correction : 1));
}
// Sets `correction`. Returns false if there is nothing to learn from.
PENSTOCK_ON_BOTH inline bool learn_correction(double fitted, float right, float& correction) {
  if (!(fitted > 0) || !(right > 0)) return false;
  correction = static_cast<float>(right / fitted);
  return true;
}

}  // namespace penstock::kernels

// Gaussian-k: a threshold from a normal law that is fitted to the entries, corrected by the number
// of entries that it selected.
// Source: Shi, Chu, Cheung, See, "Understanding Top-k Sparsification in Distributed Deep Learning",
// 2019.
#include <kernels/tail_fit.hpp>
#include <methods/steered_selection.hpp>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;

namespace {

class GaussianK : public sdk::SteeredCompressor<GaussianK> {
 public:
  static inline const sdk::OptionList options{density_option(0.001), reuse_option(1),
                                              value_type_option()};

  explicit GaussianK(const sdk::Options& values)
      : SteeredCompressor(values, "gaussiank"),
        deviations_(kernels::normal_tail_quantile(density() / 2)) {}

  // estimate resolves the fold when it first reads the entries
  static constexpr bool kFolds = true;
  using Fit = double;                      // the threshold
  static constexpr uint64_t kLearned = 1;  // ratio of the right threshold to the fitted threshold

  // The law is centred at zero because magnitudes are compared: beyond z deviations its two tails
  // together hold the density.
  float estimate(const sdk::Choice& from, std::span<float> learned, double& fitted) const {
    kernels::SelectSegment& x = from.only();
    if (x.n == 0) return 0;
    const kernels::Statistics facts = sdk::first_statistics(x, path());
    fitted = deviations_ * std::sqrt(facts.sum_of_squares / static_cast<double>(x.n));
    return kernels::corrected(fitted, learned[0]);
  }
  void learn(std::span<float> learned, double fitted, const sdk::Settled& settled) const {
    kernels::learn_correction(fitted, settled.threshold, learned[0]);
  }

  sdk::device::SteeringLaw law() const { return {sdk::device::SteeringLaw::kNormal, deviations_}; }

 private:
  double deviations_;
};

}  // namespace

PENSTOCK_COMPRESSOR(
    GaussianK, "compressor/gaussiank", "0.1.0",
    "sends the entries above the quantile of a fitted normal law",
    "Shi et al., Understanding Top-k Sparsification in Distributed Deep Learning, 2019");

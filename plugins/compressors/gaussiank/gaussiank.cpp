// Gaussian-k: a threshold from a normal law fitted to the entries, corrected by what it selected.
// Source: Shi, Chu, Cheung, See, "Understanding Top-k Sparsification in Distributed Deep Learning",
// 2019.
#include <kernels/tail_quantile.hpp>
#include <methods/steered_selection.hpp>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;

namespace {

class GaussianK : public sdk::FoldingEncoder<GaussianK> {
 public:
  static inline const sdk::OptionList options{sdk::SteeredSelection::density_option(0.001),
                                              sdk::SteeredSelection::reuse_option(1),
                                              sdk::SparseValues::option()};

  explicit GaussianK(const sdk::Options& values)
      : selection_(values, "gaussiank"),
        values_(values),
        deviations_(kernels::normal_tail_quantile(selection_.density() / 2)) {}

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
    traits.folds = sdk::kAllFolds;
  }

  // How many entries pass differs from rank to rank, so counts travel.
  void plan(const sdk::PlanCall&, const sdk::Item& item, sdk::CompressorNeed& need) {
    const sdk::KeptBand band = selection_.plan(item, need, kLearned);
    values_.plan(need, band.most, false);
  }

  void encode_item(const sdk::Call& call, const sdk::Item& item, sdk::PayloadWriter& payload,
                   const kernels::Fold* fold) const {
    kernels::SelectSegment target = sdk::entries_of(item, payload, fold);
    double fitted = 0;
    const auto estimate = [&](std::span<float> learned) {
      fitted = normal_threshold(target);
      return static_cast<float>(fitted * (learned[0] > 0 ? learned[0] : 1));
    };
    const auto learn = [&](std::span<float> learned, const sdk::Settled& settled) {
      if (fitted > 0 && settled.threshold > 0)
        learned[0] = static_cast<float>(settled.threshold / fitted);
    };
    selection_.choose(call, target, sdk::work_unit(call, item),
                      sdk::kept_band(target.n, selection_.density()),
                      item.state(sdk::SteeredSelection::kState), 0, estimate, learn);
    values_.write(item, payload, target.count);
  }

  void decode_add(const sdk::Call&, const sdk::Item& item, const sdk::PayloadReader& payload) {
    values_.add(payload, item.out());
  }

 private:
  static constexpr uint64_t kLearned = 1;  // the right threshold over the fitted one

  // Magnitudes are compared, so the law is centred at zero: beyond z deviations its two tails
  // together hold the density.
  double normal_threshold(kernels::SelectSegment& x) const {
    if (x.n == 0) return 0;
    const kernels::Statistics facts = sdk::first_statistics(x, selection_.path());
    return deviations_ * std::sqrt(facts.sum_of_squares / static_cast<double>(x.n));
  }

  sdk::SteeredSelection selection_;
  sdk::SparseValues values_;
  double deviations_;
};

}  // namespace

PENSTOCK_COMPRESSOR(
    GaussianK, "compressor/gaussiank", "0.1.0",
    "sends the entries above the quantile of a fitted normal law",
    "Shi et al., Understanding Top-k Sparsification in Distributed Deep Learning, 2019");

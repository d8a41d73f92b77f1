// Gaussian-k: a threshold from a normal law fitted to the entries, corrected by what it selected.
// Source: Shi, Chu, Cheung, See, "Understanding Top-k Sparsification in Distributed Deep Learning",
// 2019.
#include <kernels/statistics.hpp>
#include <kernels/steered_selection.hpp>
#include <kernels/tail_quantile.hpp>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;

namespace {

class GaussianK {
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
  }

  // How many entries pass differs from rank to rank, so counts travel.
  void plan(const sdk::PlanCall&, const sdk::Item& item, sdk::CompressorNeed& need) {
    const sdk::KeptBand band = selection_.plan(item, need, kLearned);
    values_.plan(need, band.most, false);
  }

  void encode(const sdk::Call& call, const sdk::Item& item, sdk::PayloadWriter& payload) {
    const std::span<const float> work = item.work();
    double fitted = 0;
    const auto estimate = [&](std::span<float> learned) {
      fitted = normal_threshold(work);
      return static_cast<float>(fitted * (learned[0] > 0 ? learned[0] : 1));
    };
    const auto learn = [&](std::span<float> learned, const sdk::Settled& settled) {
      if (fitted > 0 && settled.threshold > 0)
        learned[0] = static_cast<float>(settled.threshold / fitted);
    };
    const sdk::Settled settled = selection_.choose(
        call, work, sdk::work_unit(call, item), sdk::kept_band(work.size(), selection_.density()),
        item.state(sdk::SteeredSelection::kState), payload.room<uint32_t>(0).data(), 0, estimate,
        learn);
    values_.write(item, payload, settled.count);
  }

  void decode_add(const sdk::Call&, const sdk::Item& item, const sdk::PayloadReader& payload) {
    values_.add(payload, item.out());
  }

 private:
  static constexpr uint64_t kLearned = 1;  // the right threshold over the fitted one

  // Magnitudes are compared, so the law is centred at zero: beyond z deviations its two tails
  // together hold the density.
  double normal_threshold(std::span<const float> work) const {
    if (work.empty()) return 0;
    const kernels::Statistics facts = kernels::statistics(work.data(), work.size());
    return deviations_ * std::sqrt(facts.sum_of_squares / static_cast<double>(work.size()));
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

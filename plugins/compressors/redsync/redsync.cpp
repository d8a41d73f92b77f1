// RedSync: a threshold between the mean and the largest magnitude, found by bisection or from above
// in fixed steps. It has a quantised form that sends entries of one sign as positions and a mean.
// Source: Fang, Fu, Yang, Hsieh, "RedSync: Reducing Synchronization Bandwidth for Distributed Deep
// Learning Training System", Journal of Parallel and Distributed Computing 133, 2019.
#include <methods/sign_mean.hpp>
#include <methods/steered_selection.hpp>

#include <array>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;

namespace {

class RedSync : public sdk::SteeredCompressor<RedSync> {
 public:
  static inline const sdk::OptionList options{
      density_option(0.001), reuse_option(5),
      sdk::choice_option("search", "bisection", {"bisection", "trimmed"})
          .summary("bisection: all entries above a threshold that is found by halving; trimmed: "
                   "exactly the largest entries, out of all above a low threshold"),
      sdk::bool_option("quantised", false)
          .summary("send entries of one sign, the other in the next step, as positions and a mean"),
      value_type_option()};

  explicit RedSync(const sdk::Options& values)
      : SteeredCompressor(values, "redsync"),
        trimmed_(values.choice("search") == "trimmed"),
        quantised_(values.boolean("quantised")) {
    if (quantised_ && values.choice("value_type") != "auto" &&
        values.choice("value_type") != "fp32")
      throw sdk::invalid_argument(
          "value_type is '", values.choice("value_type"),
          "' and quantised is true, but a quantised payload has no values: leave value_type at "
          "'auto' or set quantised = false");
  }

  // range_of resolves the fold when it first reads the entries
  static constexpr bool kFolds = true;

  void describe(penstock_compressor_traits& traits) const {
    SteeredCompressor::describe(traits);
    // The quantised form copies work before it looks for a threshold.
    if (quantised_) traits.folds = 0;
  }
  // The quantised form has a threshold for each sign, and keeps the magnitudes of one sign at a
  // time in the scratch.
  void plan(const sdk::PlanCall& call, const sdk::Item& item, sdk::CompressorNeed& need) {
    if (!quantised_) return SteeredCompressor::plan(call, item, need);
    sdk::check_indexable(item, name());
    const uint64_t n = item.numel();
    need.states.add("threshold", 1, 2 * kNumbers, PENSTOCK_STATE_SOFT);
    need.scratch_bytes = sdk::one_sign_scratch_bytes(n, most(n));
    if constexpr (sdk::device::kHasKernels)
      need.scratch_bytes =
          std::max(need.scratch_bytes, sdk::device::OneSignScratch(n, most(n)).bytes());
    need.round(PENSTOCK_COMBINE_GATHER)
        .section(PENSTOCK_ROLE_INDICES, PENSTOCK_UINT32, most(n), false, PENSTOCK_SPLIT_BY_INDEX)
        .section(PENSTOCK_ROLE_SCALES, PENSTOCK_FLOAT32, 1, true, PENSTOCK_SPLIT_COPY);
  }

  void encode_item(const sdk::Call& call, const sdk::Item& item, sdk::PayloadWriter& payload,
                   const kernels::Fold* fold) const {
    if (!quantised_) return SteeredCompressor::encode_item(call, item, payload, fold);
    const bool negative = call.step->index % 2 == 1;
    const std::span<float> state =
        item.state(sdk::SteeredSelection::kState).subspan(negative ? kNumbers : 0, kNumbers);
    if constexpr (sdk::device::kHasKernels)
      if (call.on_device())
        return sdk::device::send_one_sign(call, item, payload, negative, law(),
                                          rules(call, item, band(item.numel())), state);
    const std::span<uint32_t> chosen =
        sdk::choose_of_sign(call, item, negative, payload.room<uint32_t>(0), path(),
                            [&](const sdk::Choice& from) { choose_with(from, state); });
    payload.kind(PENSTOCK_PAYLOAD_CODED);
    payload.count(0, chosen.size());
    payload.count(1, 1);
    payload.room<float>(1)[0] = sdk::take_mean(item, chosen);
  }

  void decode(const sdk::Call& call, const sdk::Items& items, const sdk::PayloadReaders& payloads) {
    if (!quantised_) return SteeredCompressor::decode(call, items, payloads);
    if constexpr (sdk::device::kHasKernels)
      if (call.on_device()) return decode_means_on_device(call, items, payloads);
    for (uint64_t i = 0; i < items.size(); ++i) {
      const std::span<float> out = items[i].out();
      if ((call.flags & PENSTOCK_DECODE_FIRST) != 0) std::fill(out.begin(), out.end(), 0.0f);
      for (uint64_t r = 0; r < payloads.n_ranks(); ++r) {
        const sdk::PayloadReader payload = payloads.at(i, r);
        if (payload.absent()) continue;
        const float mean = sdk::checked_means(call, payload, 1, 1)[0];
        sdk::add_mean(sdk::checked_indices(call, payload, 0, out.size()), mean, out);
      }
      if (const float scale = call.result_scale(); scale != 1)
        for (float& value : out) value *= scale;
    }
  }

  sdk::device::SteeringLaw law() const {
    return {trimmed_ ? sdk::device::SteeringLaw::kTrimmed : sdk::device::SteeringLaw::kBisection};
  }

  // Positions of thresholds are shares of the distance from the mean magnitude to the largest
  // magnitude.
  struct Range {
    double mean;
    double largest;
    float at(double position) const {
      return static_cast<float>(mean + position * (largest - mean));
    }
    double position_of(double threshold) const {
      return largest > mean ? (threshold - mean) / (largest - mean) : 0;
    }
  };
  using Fit = Range;
  static constexpr uint64_t kLearned = 2;  // whether a position is known, and the position

  sdk::KeptBand band(uint64_t n) const {
    const sdk::KeptBand band = sdk::kept_band(n, density());
    return trimmed_ ? sdk::exact_band(band) : band;
  }
  float estimate(const sdk::Choice& from, std::span<float> learned, Range& range) const {
    kernels::SelectSegment& x = from.only();
    range = range_of(x, path());
    if (learned[0] > 0) return range.at(learned[1]);
    return trimmed_ ? from_above(x, range, band(x.n), path())
                    : by_bisection(x, range, band(x.n), path());
  }
  void learn(std::span<float> learned, const Range& range, const sdk::Settled& settled) const {
    learned[0] = settled.hit ? 1 : 0;
    learned[1] = static_cast<float>(range.position_of(settled.threshold));
  }

 private:
  static constexpr uint64_t kNumbers = sdk::SteeredSelection::kOwnNumbers + kLearned;
  static constexpr uint64_t kProbes = 15;  // counted in one pass, enough for four halvings
  static constexpr int kMostPasses = 2;

  static void decode_means_on_device(const sdk::Call& call, const sdk::Items& items,
                                     const sdk::PayloadReaders& payloads) {
    sdk::device::SparseSumming sums(call);
    sdk::device::add_up(call, items, payloads, sums,
                        [&](const sdk::PayloadReader& payload, const sdk::Item& item) {
                          const float* const mean = sdk::checked_means(call, payload, 1, 1).data();
                          const auto indices = sdk::checked_indices(call, payload, 0, item.numel());
                          return sdk::device::SparseSender{indices.data(), mean, indices.size()};
                        });
  }

  static Range range_of(kernels::SelectSegment& x, kernels::CodePath path) {
    if (x.n == 0) return {0, 0};
    const kernels::Statistics facts = sdk::first_statistics(x, path);
    return {facts.sum_of_magnitudes / static_cast<double>(x.n), facts.largest};
  }

  // Halves [0, 1], at most eight times, until the number of passing entries is inside the band.
  // After eight halvings it returns the lower end, which too many entries pass, so that the largest
  // entries are sent. One pass counts all thresholds that the next four halvings may need.
  static float by_bisection(const kernels::SelectSegment& x, const Range& range,
                            const sdk::KeptBand& band, kernels::CodePath path) {
    double low = 0, width = 1;
    for (int pass = 0; pass < kMostPasses; ++pass) {
      const double step = width / (kProbes + 1);
      std::array<float, kProbes> thresholds;
      std::array<uint64_t, kProbes> counts;
      for (uint64_t j = 0; j < kProbes; ++j)
        thresholds[j] = range.at(low + static_cast<double>(j + 1) * step);
      kernels::count_above(x.x, x.n, thresholds, counts.data(), path);
      uint64_t below = 0;  // probes at or below the lower end
      for (uint64_t half = (kProbes + 1) / 2; half > 0; half /= 2) {
        const uint64_t count = counts[below + half - 1];
        if (count >= band.least && count <= band.most) return thresholds[below + half - 1];
        if (count > band.most) below += half;
      }
      low += static_cast<double>(below) * step;
      width = step;
    }
    return range.at(low);
  }

  // The threshold at the highest of the positions 0.8, 0.6, 0.4, 0.2, 0 that enough entries reach;
  // the threshold 0 if there is none. One pass counts all five.
  static float from_above(const kernels::SelectSegment& x, const Range& range,
                          const sdk::KeptBand& band, kernels::CodePath path) {
    std::array<float, 5> thresholds;
    std::array<uint64_t, 5> counts;
    for (uint64_t j = 0; j < 5; ++j) thresholds[j] = range.at(0.2 * static_cast<double>(4 - j));
    kernels::count_above(x.x, x.n, thresholds, counts.data(), path);
    for (uint64_t j = 0; j < 5; ++j)
      if (counts[j] >= band.target) return thresholds[j] / band.slack;
    return 0;
  }

  bool trimmed_;
  bool quantised_;
};

}  // namespace

PENSTOCK_COMPRESSOR(RedSync, "compressor/redsync", "0.1.0",
                    "sends the entries above a threshold between the mean and the largest",
                    "Fang et al., RedSync, Journal of Parallel and Distributed Computing, 2019");

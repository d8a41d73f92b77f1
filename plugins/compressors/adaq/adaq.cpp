// AdaQ: the same share of the positive and of the negative entries goes, as positions and one mean
// for each sign.
// Source: Dryden, Moon, Jacobs, Van Essen, "Communication Quantization for Data-Parallel Training
// of Deep Neural Networks", MLHPC 2016.
#include <methods/sign_mean.hpp>
#include <methods/steered_selection.hpp>

#include <array>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;

namespace {

class AdaQ {
 public:
  static inline const sdk::OptionList options{sdk::SteeredSelection::density_option(0.01)};

  explicit AdaQ(const sdk::Options& values) : selection_(values.real("density"), "adaq") {}

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
  }

  // One sign may have all entries. The scratch holds the magnitudes of one sign at a time.
  void plan(const sdk::PlanCall&, const sdk::Item& item, sdk::CompressorNeed& need) {
    const sdk::KeptBand band = selection_.plan(item, need, sdk::SteeredSelection::kOwnNumbers,
                                               item.numel() * sizeof(float));
    need.round(PENSTOCK_COMBINE_GATHER)
        .section(PENSTOCK_ROLE_INDICES, PENSTOCK_UINT32, band.most, false)
        .section(PENSTOCK_ROLE_INDICES, PENSTOCK_UINT32, band.most, false)
        .section(PENSTOCK_ROLE_SCALES, PENSTOCK_FLOAT32, 2);
  }

  void encode(const sdk::Call& call, const sdk::Item& item, sdk::PayloadWriter& payload) {
    payload.kind(PENSTOCK_PAYLOAD_CODED);
    payload.count(2, 2);
    std::array<std::span<uint32_t>, 2> chosen;
    for (const uint64_t sign : {kPositive, kNegative}) {
      chosen[sign] = payload.room<uint32_t>(sign);
      chosen[sign] = chosen[sign].subspan(0, choose(call, item, sign, chosen[sign].data()));
      payload.count(sign, chosen[sign].size());
    }
    // Only now: what is taken from one sign may leave entries of the other.
    for (const uint64_t sign : {kPositive, kNegative})
      payload.room<float>(2)[sign] = sdk::take_mean(item, chosen[sign]);
  }

  void decode_add(const sdk::Call&, const sdk::Item& item, const sdk::PayloadReader& payload) {
    if (payload.kind() != PENSTOCK_PAYLOAD_CODED)
      throw payload.error("is of kind ", payload.kind(), ", expected coded");
    const std::span<const float> means = sdk::checked_means(payload, 2, 2);
    const auto positive = sdk::checked_indices(payload, kPositive, item.numel());
    const auto negative = sdk::checked_indices(payload, kNegative, item.numel());
    sdk::add_mean(positive, means[kPositive], item.out());
    sdk::add_mean(negative, means[kNegative], item.out());
  }

 private:
  static constexpr uint64_t kPositive = 0;  // also the index of the section
  static constexpr uint64_t kNegative = 1;

  // The threshold that would have been right in the last step is this step's first guess.
  uint64_t choose(const sdk::Call& call, const sdk::Item& item, uint64_t sign,
                  uint32_t* indices) const {
    const std::span<float> y = call.scratch<float>(item.numel());
    const uint64_t of_sign = sdk::magnitudes_of_sign(item.work(), sign == kNegative, y.data());
    constexpr uint64_t kNumbers = sdk::SteeredSelection::kOwnNumbers;
    const std::span<float> state =
        item.state(sdk::SteeredSelection::kState).subspan(sign * kNumbers, kNumbers);
    const double unit = sdk::work_unit(call, item);
    kernels::SelectSegment target{y.data(), y.size(), indices, nullptr};
    selection_.choose(
        call, target, unit, sdk::kept_band(of_sign, selection_.density()), state, y.size_bytes(),
        [&](std::span<float>) { return static_cast<float>(state[0] * unit); },
        [](std::span<float>, const sdk::Settled&) {});
    return target.count;
  }

  sdk::SteeredSelection selection_;
};

}  // namespace

PENSTOCK_COMPRESSOR(AdaQ, "compressor/adaq", "0.1.0",
                    "sends the largest of each sign as positions and one mean",
                    "Dryden et al., Communication Quantization for Data-Parallel Training of Deep "
                    "Neural Networks, MLHPC 2016");

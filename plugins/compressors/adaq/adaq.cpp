// AdaQ: sends an equal share of the positive and of the negative entries, as positions and one mean
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

  explicit AdaQ(const sdk::Options& values)
      : selection_(values.real("density")), path_(sdk::agreed_code_path("select")) {}

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
  }

  // All entries may have one sign. The scratch holds the magnitudes of one sign at a time.
  void plan(const sdk::PlanCall&, const sdk::Item& item, sdk::CompressorNeed& need) {
    sdk::check_indexable(item, "adaq");
    const uint64_t n = item.numel(), most = selection_.band(n).most;
    selection_.plan(need, sdk::SteeredSelection::kOwnNumbers);
    need.scratch_bytes = sdk::one_sign_scratch_bytes(n, most);
    need.round(PENSTOCK_COMBINE_GATHER)
        .section(PENSTOCK_ROLE_INDICES, PENSTOCK_UINT32, most, false)
        .section(PENSTOCK_ROLE_INDICES, PENSTOCK_UINT32, most, false)
        .section(PENSTOCK_ROLE_SCALES, PENSTOCK_FLOAT32, 2);
  }

  void encode(const sdk::Call& call, const sdk::Item& item, sdk::PayloadWriter& payload) {
    payload.kind(PENSTOCK_PAYLOAD_CODED);
    payload.count(2, 2);
    std::array<std::span<uint32_t>, 2> chosen;
    for (const uint64_t sign : {kPositive, kNegative}) {
      chosen[sign] = choose(call, item, sign, payload.room<uint32_t>(sign));
      payload.count(sign, chosen[sign].size());
    }
    // Only now, because a value that is subtracted for one sign may give an entry the other sign.
    for (const uint64_t sign : {kPositive, kNegative})
      payload.room<float>(2)[sign] = sdk::take_mean(item, chosen[sign]);
  }

  void decode_add(const sdk::Call& call, const sdk::Item& item, const sdk::PayloadReader& payload) {
    const std::span<const float> means = sdk::checked_means(call, payload, 2, 2);
    const auto positive = sdk::checked_indices(call, payload, kPositive, item.numel());
    const auto negative = sdk::checked_indices(call, payload, kNegative, item.numel());
    sdk::add_mean(positive, means[kPositive], item.out());
    sdk::add_mean(negative, means[kNegative], item.out());
  }

 private:
  static constexpr uint64_t kPositive = 0;  // also the index of the section
  static constexpr uint64_t kNegative = 1;

  // The first guess is the threshold that would have been right in the last step.
  std::span<uint32_t> choose(const sdk::Call& call, const sdk::Item& item, uint64_t sign,
                             std::span<uint32_t> room) const {
    constexpr uint64_t kNumbers = sdk::SteeredSelection::kOwnNumbers;
    const std::span<float> state =
        item.state(sdk::SteeredSelection::kState).subspan(sign * kNumbers, kNumbers);
    return sdk::choose_of_sign(
        call, item, sign == kNegative, room, path_, [&](const sdk::Choice& from) {
          selection_.choose(
              from, selection_.band(from.most), state,
              [&](std::span<float>) { return static_cast<float>(state[0] * from.unit()); },
              [](std::span<float>, const sdk::Settled&) {});
        });
  }

  sdk::SteeredSelection selection_;
  kernels::CodePath path_;
};

}  // namespace

PENSTOCK_COMPRESSOR(AdaQ, "compressor/adaq", "0.1.0",
                    "sends the largest of each sign as positions and one mean",
                    "Dryden et al., Communication Quantization for Data-Parallel Training of Deep "
                    "Neural Networks, MLHPC 2016");

// EF-sign: each rank sends the signs of its gradient and one scale, the mean magnitude; a memory
// keeps the rest.
// Source: Karimireddy, Rebjock, Stich, Jaggi, "Error Feedback Fixes SignSGD and other Gradient
// Compression Schemes", ICML 2019, algorithm 1. See README.md for where this differs and why.
#include <kernels/norm.hpp>
#include <methods/agreed.hpp>
#include <methods/folded.hpp>
#include <methods/sign.hpp>

#include <algorithm>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;

namespace {

class EfSign : public sdk::FoldingEncoder<EfSign> {
 public:
  static inline const sdk::OptionList options{};
  explicit EfSign(const sdk::Options&) : path_(sdk::agreed_code_path("sign")) {}

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
    traits.folds = sdk::kAllFolds;
  }

  // Scales differ between ranks, so payloads are gathered and added here. A part of a gradient
  // would get a scale of its own: one item, one scale.
  void plan(const sdk::PlanCall& call, const sdk::Item& item, sdk::CompressorNeed& need) {
    sdk::plan_signs(need.round(PENSTOCK_COMBINE_GATHER), item.numel())
        .section(PENSTOCK_ROLE_SCALES, PENSTOCK_FLOAT32, 1);
    need.scratch_bytes = sdk::sign_sender_bytes(call.world);
  }

  // C(p) = |p|_1 / n * sign(p)
  void encode_item(const sdk::Call&, const sdk::Item& item, sdk::PayloadWriter& payload,
                   const kernels::Fold* fold) const {
    const std::span<float> work = item.work();
    sdk::write_signs(work, payload, path_, fold);
    const double sum = kernels::sum_of_magnitudes(work.data(), work.size(), path_);
    const auto elements = static_cast<double>(std::max<uint64_t>(1, work.size()));
    const auto scale = static_cast<float>(sum / elements);
    payload.room<float>(kScale)[0] = scale;
    payload.count(kScale, 1);
    if (item.keeps()) kernels::take_out_by_sign(work.data(), work.size(), scale, -scale, path_);
  }

  void decode(const sdk::Call& call, const sdk::Items& items, const sdk::PayloadReaders& payloads) {
    sdk::decode_valued_signs(
        call, items, payloads, path_, [](const sdk::Item& item) { return item.numel() + 64; },
        [](const sdk::PayloadReader& payload, const sdk::Item& item, sdk::SignSender& sender) {
          sender.valued.signs = sdk::read_signs(payload, item.numel());
          sdk::read_scale(payload, kScale, sender);
        });
  }

 private:
  static constexpr uint64_t kScale = sdk::kAfterSigns;
  kernels::CodePath path_;
};

}  // namespace

PENSTOCK_COMPRESSOR(EfSign, "compressor/efsign", "0.1.0",
                    "signs and their mean magnitude, with error feedback",
                    "Karimireddy et al., Error Feedback Fixes SignSGD and other Gradient "
                    "Compression Schemes, ICML 2019");

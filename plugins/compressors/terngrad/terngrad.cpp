// TernGrad: each element is sent as -1, 0 or 1 times one scale, by chance, so that the expectation
// is the element; before that it is clipped.
// Source: Wen, Xu, Yan, Wu, Wang, Chen, Li, "TernGrad: Ternary Gradients to Reduce Communication in
// Distributed Deep Learning", NeurIPS 2017. See README.md for where this differs and why.
#include <kernels/execution.hpp>
#include <kernels/stochastic.hpp>
#include <methods/agreed.hpp>
#include <methods/dense.hpp>
#include <methods/sign.hpp>

#include <algorithm>
#include <cmath>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;

namespace {

class TernGrad {
 public:
  static inline const sdk::OptionList options{
      sdk::real_option("clip", 2.5)
          .at_least(0)
          .at_most(1e6)
          .unit("standard deviations")
          .summary("elements beyond so many standard deviations are clipped; 0: none are")};

  explicit TernGrad(const sdk::Options& values)
      : clip_(values.real("clip")), on_(sdk::agreed_execution("stochastic")) {
    if (clip_ > 0 && clip_ < kLeastClip)
      throw sdk::invalid_argument("terngrad: clip is ", clip_, ", expected 0 or at least ",
                                  kLeastClip, "; 0 clips nothing, 2.5 is the paper's");
  }

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_RANDOM;
    if (clip_ == 0) traits.flags |= PENSTOCK_COMPRESSOR_UNBIASED;
  }

  // Scales differ between ranks, so payloads are gathered and added here. One item, one scale.
  void plan(const sdk::PlanCall& call, const sdk::Item& item, sdk::CompressorNeed& need) {
    const uint64_t words = kernels::sign_words(item.numel());
    need.round(PENSTOCK_COMBINE_GATHER)
        .section(PENSTOCK_ROLE_BITS, PENSTOCK_UINT64, words)
        .section(PENSTOCK_ROLE_BITS, PENSTOCK_UINT64, words)
        .section(PENSTOCK_ROLE_SCALES, PENSTOCK_FLOAT32, 1);
    need.scratch_bytes = sdk::sign_sender_bytes(call.world);
  }

  void encode(const sdk::Call& call, const sdk::Item& item, sdk::PayloadWriter& payload) {
    const std::span<float> work = item.work();
    const std::span<uint64_t> negative = payload.room<uint64_t>(kNegative);
    const std::span<uint64_t> nonzero = payload.room<uint64_t>(kNonzero);
    const float scale = scale_of(work);
    if (scale == 0) {  // all elements are zero
      std::fill(negative.begin(), negative.end(), 0);
      std::fill(nonzero.begin(), nonzero.end(), 0);
    } else {
      const kernels::RandomKey key = sdk::rounding_key(call, item);
      const auto round = [&](uint32_t, uint64_t begin, uint64_t end) {
        kernels::round_to_signs(work.data() + begin, end - begin, scale, key,
                                item.c().first + begin, item.keeps(), negative.data() + begin / 64,
                                nonzero.data() + begin / 64, on_.path);
      };
      on_.workers.for_rows(work.size(), 1, 64, round);
    }
    payload.room<float>(kScale)[0] = scale;
    payload.kind(PENSTOCK_PAYLOAD_CODED);
    payload.count(kNegative, negative.size());
    payload.count(kNonzero, nonzero.size());
    payload.count(kScale, 1);
  }

  void decode(const sdk::Call& call, const sdk::Items& items, const sdk::PayloadReaders& payloads) {
    sdk::decode_valued_signs(
        call, items, payloads, on_.path, [](const sdk::Item& item) { return item.numel() + 64; },
        [](const sdk::PayloadReader& payload, const sdk::Item& item, sdk::SignSender& sender) {
          const uint64_t words = kernels::sign_words(item.numel());
          sender.valued.signs = {payload.section<uint64_t>(kNegative, words).data(), nullptr, 0,
                                 payload.section<uint64_t>(kNonzero, words).data()};
          sdk::read_scale(payload, kScale, sender);
        });
  }

 private:
  static constexpr double kLeastClip = 1e-3;  // below, next to nothing would be left
  enum Section : uint64_t { kNegative = 0, kNonzero = 1, kScale = 2 };

  // The largest magnitude after clipping. The deviation is that from zero, the mean of a gradient
  // for which clipping was made: about their own mean equal elements would have none, and all of
  // them would be clipped away.
  float scale_of(std::span<const float> work) const {
    const kernels::Moments moments = kernels::moments(work.data(), work.size(), on_.path);
    if (clip_ == 0 || moments.largest == 0) return moments.largest;
    const double deviation = std::sqrt(moments.sum_of_squares / static_cast<double>(work.size()));
    return static_cast<float>(std::min(double{moments.largest}, clip_ * deviation));
  }

  double clip_;
  kernels::Execution on_;
};

}  // namespace

PENSTOCK_COMPRESSOR(TernGrad, "compressor/terngrad", "0.1.0",
                    "-1, 0 or 1 times one scale by chance, after clipping, 2 bits",
                    "Wen et al., TernGrad: Ternary Gradients to Reduce Communication in "
                    "Distributed Deep Learning, NeurIPS 2017");

// TernGrad: each element is sent as -1, 0 or 1 times one scale, at random, so that the expectation
// is the element; before that the element is clipped.
// Source: Wen, Xu, Yan, Wu, Wang, Chen, Li, "TernGrad: Ternary Gradients to Reduce Communication in
// Distributed Deep Learning", NeurIPS 2017. See README.md for where this differs and why.
#include <kernels/execution.hpp>
#include <kernels/stochastic.hpp>
#include <methods/agreed.hpp>
#include <methods/dense.hpp>
#include <methods/device/codes.hpp>
#include <methods/sign.hpp>

#include <algorithm>
#include <cmath>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;
namespace device = penstock::sdk::device;
namespace cuda = penstock::kernels::cuda;

namespace {

class TernGrad {
 public:
  static constexpr bool kScalesResult = true;
  static inline const sdk::OptionList options{
      sdk::real_option("clip", 2.5)
          .at_least(0)
          .at_most(1e6)
          .unit("standard deviations")
          .summary(
              "elements beyond this number of standard deviations are clipped; 0: no clipping")};

  explicit TernGrad(const sdk::Options& values)
      : clip_(values.real("clip")), on_(sdk::agreed_execution("stochastic")) {
    if (clip_ > 0 && clip_ < kLeastClip)
      throw sdk::invalid_argument("terngrad: clip is ", clip_, ", expected 0 or at least ",
                                  kLeastClip, "; 0 clips nothing, 2.5 is the paper's");
  }

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_RANDOM;
    if (clip_ == 0) traits.flags |= PENSTOCK_COMPRESSOR_UNBIASED;
    traits.device_types = device::kWhereKernelsAre;
  }

  // Scales differ between ranks, so payloads are gathered and summed by `decode`. Each item has one
  // scale.
  void plan(const sdk::PlanCall& call, const sdk::Item& item, sdk::CompressorNeed& need) {
    const uint64_t words = kernels::sign_words(item.numel());
    need.round(PENSTOCK_COMBINE_GATHER)
        .section(PENSTOCK_ROLE_BITS, PENSTOCK_UINT64, words)
        .section(PENSTOCK_ROLE_BITS, PENSTOCK_UINT64, words)
        .section(PENSTOCK_ROLE_SCALES, PENSTOCK_FLOAT32, 1);
    need.scratch_bytes = sdk::sign_sender_bytes(call.world);
    if constexpr (device::kHasKernels)
      need.scratch_bytes =
          std::max(need.scratch_bytes, device::quantising_scratch(item.numel(), 0, false).bytes);
  }

  void encode(const sdk::Call& call, const sdk::Item& item, sdk::PayloadWriter& payload) {
    const std::span<float> work = item.work();
    const std::span<uint64_t> negative = payload.room<uint64_t>(kNegative);
    const std::span<uint64_t> nonzero = payload.room<uint64_t>(kNonzero);
    payload.kind(PENSTOCK_PAYLOAD_CODED);
    payload.count(kNegative, negative.size());
    payload.count(kNonzero, nonzero.size());
    payload.count(kScale, 1);
    if constexpr (device::kHasKernels)
      if (call.on_device()) return encode_on_device(call, item, payload);
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
  }

  void decode(const sdk::Call& call, const sdk::Items& items, const sdk::PayloadReaders& payloads) {
    if constexpr (device::kHasKernels)
      if (call.on_device()) return decode_on_device(call, items, payloads);
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
  static constexpr double kLeastClip = 1e-3;  // below this, almost nothing would remain
  enum Section : uint64_t { kNegative = 0, kNonzero = 1, kScale = 2 };

  // The largest magnitude after clipping. The deviation is the deviation from zero, which is the
  // mean of the gradients for which clipping was made. Equal elements have no deviation from their
  // own mean, so they would all be clipped to zero.
  float scale_of(std::span<const float> work) const {
    const kernels::Moments moments = kernels::moments(work.data(), work.size(), on_.path);
    if (clip_ == 0 || moments.largest == 0) return moments.largest;
    const double deviation = std::sqrt(moments.sum_of_squares / static_cast<double>(work.size()));
    return static_cast<float>(std::min(double{moments.largest}, clip_ * deviation));
  }

  // The scale stays on the device. Squares for clipping are summed in the device's order, so a
  // clipped scale may be the next float.
  void encode_on_device(const sdk::Call& call, const sdk::Item& item,
                        const sdk::PayloadWriter& payload) const {
    const std::span<float> work = item.work();
    const auto room = device::quantising_scratch(work.size(), 0, false);
    auto* const moments = call.scratch<kernels::Moments>(1, room.of_blocks).data();
    const cuda::Workspace workspace = device::workspace_of(call, room.workspace);
    float* const scale = payload.room<float>(kScale).data();
    const auto find_scale = [&](void* stream) -> int32_t {
      if (clip_ == 0)
        return cuda::largest_magnitude(work.data(), work.size(), 0, scale, workspace, stream);
      const int32_t error = cuda::moments(work.data(), work.size(), 0, moments, workspace, stream);
      if (error != 0) return error;
      return cuda::clipped_scale(moments, work.size(), clip_, scale, stream);
    };
    device::queue_on_device(call, item, "quantise", [&](void* stream) {
      if (const int32_t error = find_scale(stream); error != 0) return error;
      return cuda::round_to_signs(work.data(), work.size(), scale, sdk::rounding_key(call, item),
                                  item.c().first, item.keeps(),
                                  payload.room<uint64_t>(kNegative).data(),
                                  payload.room<uint64_t>(kNonzero).data(), stream);
    });
  }

  static void decode_on_device(const sdk::Call& call, const sdk::Items& items,
                               const sdk::PayloadReaders& payloads) {
    for (uint64_t i = 0; i < items.size(); ++i) {
      const uint64_t words = kernels::sign_words(items[i].numel());
      const auto sender_of = [words](const sdk::PayloadReader& payload) {
        return cuda::ChosenSigns{payload.section<uint64_t>(kNegative, words).data(),
                                 payload.section<uint64_t>(kNonzero, words).data(),
                                 payload.section<float>(kScale, 1).data()};
      };
      for (uint64_t r = 0; r < payloads.n_ranks(); ++r) {
        const sdk::PayloadReader payload = payloads.at(i, r);
        if (payload.absent()) continue;
        (void)sender_of(payload);  // counts
        sdk::check_scale(payload, payload.on_host<float>(call, kScale)[0]);
      }
      device::sum_payloads<cuda::ChosenSigns>(call, items[i], payloads, i, 0, sender_of,
                                              cuda::sum_chosen_signs);
    }
  }

  double clip_;
  kernels::Execution on_;
};

}  // namespace

PENSTOCK_COMPRESSOR(TernGrad, "compressor/terngrad", "0.1.0",
                    "-1, 0 or 1 times one scale by chance, after clipping, 2 bits",
                    "Wen et al., TernGrad: Ternary Gradients to Reduce Communication in "
                    "Distributed Deep Learning, NeurIPS 2017");

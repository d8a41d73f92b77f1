// 1-bit SGD: each rank sends one bit per element, and two numbers per run of elements, the means of
// the positive and of the negative ones; a memory keeps the rest.
// Source: Seide, Fu, Droppo, Li, Yu, "1-Bit Stochastic Gradient Descent and its Application to
// Data-Parallel Distributed Training of Speech DNNs", Interspeech 2014. See README.md for where
// this differs and why.
#include <methods/agreed.hpp>
#include <methods/folded.hpp>
#include <methods/sign.hpp>

#include <algorithm>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;

namespace {

class OneBit : public sdk::FoldingEncoder<OneBit> {
 public:
  static inline const sdk::OptionList options{
      sdk::integer_option("bucket", 0)
          .at_least(0)
          .at_most(1 << 30)
          .unit("elements")
          .summary("elements that share a pair of means, a multiple of 64; 0: the whole gradient")};

  explicit OneBit(const sdk::Options& values)
      : bucket_(static_cast<uint64_t>(values.integer("bucket"))),
        path_(sdk::agreed_code_path("sign")) {
    if (bucket_ % 64 != 0)
      throw sdk::invalid_argument("onebit: bucket is ", bucket_,
                                  ", expected 0 or a multiple of 64; try ",
                                  (bucket_ + 63) / 64 * 64);
  }

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
    traits.folds = sdk::kAllFolds;
  }

  void plan(const sdk::PlanCall& call, const sdk::Item& item, sdk::CompressorNeed& need) {
    sdk::plan_signs(need.round(PENSTOCK_COMBINE_GATHER), item.numel())
        .section(PENSTOCK_ROLE_SCALES, PENSTOCK_FLOAT32, 2 * runs(item));
    need.part_alignment = bucket_;
    need.scratch_bytes = sdk::sign_sender_bytes(call.world);
  }

  // Of all pairs of numbers the means of the two classes leave the least squared error.
  void encode_item(const sdk::Call&, const sdk::Item& item, sdk::PayloadWriter& payload,
                   const kernels::Fold* fold) const {
    const std::span<float> work = item.work();
    sdk::write_signs(work, payload, path_, fold);
    const std::span<float> means = payload.room<float>(kMeans);
    for (uint64_t r = 0; r < runs(item); ++r) {
      const uint64_t first = r * run(item);
      const uint64_t count = std::min(run(item), work.size() - first);
      const kernels::SumsBySign sums = kernels::sums_by_sign(work.data() + first, count, path_);
      const float plus = mean(sums.positive, sums.n_positive);
      const float minus = mean(sums.negative, sums.n_negative);
      means[2 * r] = plus;
      means[2 * r + 1] = minus;
      if (item.keeps()) kernels::take_out_by_sign(work.data() + first, count, plus, minus, path_);
    }
    payload.count(kMeans, means.size());
  }

  void decode(const sdk::Call& call, const sdk::Items& items, const sdk::PayloadReaders& payloads) {
    sdk::decode_valued_signs(
        call, items, payloads, path_, [this](const sdk::Item& item) { return run(item); },
        [this](const sdk::PayloadReader& payload, const sdk::Item& item, sdk::SignSender& sender) {
          sender.valued.signs = sdk::read_signs(payload, item.numel());
          sender.valued.values = checked_means(payload, runs(item));
        });
  }

 private:
  static constexpr uint64_t kMeans = sdk::kAfterSigns;

  // Elements per pair of means, a multiple of 64.
  uint64_t run(const sdk::Item& item) const {
    return bucket_ != 0 ? bucket_ : kernels::sign_words(std::max<uint64_t>(1, item.numel())) * 64;
  }
  uint64_t runs(const sdk::Item& item) const { return (item.numel() + run(item) - 1) / run(item); }
  static float mean(double sum, uint64_t count) {
    return count == 0 ? 0.0f : static_cast<float>(sum / static_cast<double>(count));
  }
  static const float* checked_means(const sdk::PayloadReader& payload, uint64_t runs) {
    const auto means = payload.section<float>(kMeans, 2 * runs);
    for (uint64_t m = 0; m < means.size(); ++m) {
      const float magnitude = m % 2 == 0 ? means[m] : -means[m];
      if (!(magnitude >= 0) || !std::isfinite(magnitude))
        throw payload.error("has ", means[m], " as mean of ", m % 2 == 0 ? "positive" : "negative",
                            " elements");
    }
    return means.data();
  }

  uint64_t bucket_;
  kernels::CodePath path_;
};

}  // namespace

PENSTOCK_COMPRESSOR(OneBit, "compressor/onebit", "0.1.0",
                    "one bit per element and the means of both signs, with error feedback",
                    "Seide et al., 1-Bit Stochastic Gradient Descent and its Application to "
                    "Data-Parallel Distributed Training of Speech DNNs, Interspeech 2014");

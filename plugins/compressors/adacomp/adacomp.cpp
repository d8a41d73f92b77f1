// AdaComp: in each bin of neighbouring entries, an entry is sent if adding the last gradient once
// more would lift it to the largest entry of the bin. All sent entries share one magnitude and have
// signs.
// Source: Chen, Choi, Brand, Agrawal, Zhang, Gopalakrishnan, "AdaComp: Adaptive Residual Gradient
// Compression for Data-Parallel Distributed Training", AAAI 2018.
#include <methods/agreed.hpp>
#include <methods/density.hpp>
#include <methods/sign_mean.hpp>

#include "code.hpp"

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;

namespace {

class AdaComp {
 public:
  static inline const sdk::OptionList options{
      sdk::integer_option("bin_length", 50)
          .at_least(1)
          .at_most(adacomp::Code<uint16_t>::kMostBinLength)
          .unit("entries")
          .summary(
              "neighbouring entries in a bin; up to 63 take one byte for each sent entry, more "
              "take two"),
      sdk::real_option("capacity", 1)
          .above(0)
          .at_most(1)
          .unit("fraction")
          .summary("largest share of the entries that is sent; the largest entries go first, the "
                   "rest waits")};

  explicit AdaComp(const sdk::Options& values)
      : bin_length_(static_cast<uint64_t>(values.integer("bin_length"))),
        capacity_(values.real("capacity")),
        path_(sdk::agreed_code_path("select")) {}

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
  }

  // The number of sent entries differs between ranks, so counts travel.
  void plan(const sdk::PlanCall&, const sdk::Item& item, sdk::CompressorNeed& need) {
    sdk::check_indexable(item, "adacomp");
    const uint64_t n = item.numel();
    need.round(PENSTOCK_COMBINE_GATHER)
        .section(PENSTOCK_ROLE_OTHER, narrow() ? PENSTOCK_UINT8 : PENSTOCK_UINT16,
                 most(n) + n_bins(n), false)
        .section(PENSTOCK_ROLE_SCALES, PENSTOCK_FLOAT32, 1);
    need.scratch_bytes = 3 * list_bytes(n) + kernels::select_scratch_bytes(n, most(n));
  }

  void encode(const sdk::Call& call, const sdk::Item& item, sdk::PayloadWriter& payload) {
    const std::span<float> work = item.work();
    const uint64_t n = work.size();
    const std::span<uint32_t> chosen = call.scratch<uint32_t>(n);
    const auto [candidates, scale] = choose(call, item, chosen);
    const uint64_t count = cut(call, work, chosen.subspan(0, candidates));
    payload.kind(PENSTOCK_PAYLOAD_CODED);
    payload.room<float>(1)[0] = scale;
    payload.count(1, 1);
    payload.count(0, narrow() ? write<uint8_t>(work, chosen.subspan(0, count), payload)
                              : write<uint16_t>(work, chosen.subspan(0, count), payload));
    if (!item.keeps()) return;
    for (const uint32_t i : chosen.subspan(0, count)) work[i] -= work[i] < 0 ? -scale : scale;
  }

  void decode_add(const sdk::Call& call, const sdk::Item& item, const sdk::PayloadReader& payload) {
    const float scale = sdk::checked_means(call, payload, 1, 1)[0];
    narrow() ? read<uint8_t>(payload, scale, item.out())
             : read<uint16_t>(payload, scale, item.out());
  }

 private:
  struct Chosen {
    uint64_t count;
    float scale;  // mean over bins of the largest magnitude
  };

  bool narrow() const { return bin_length_ <= adacomp::Code<uint8_t>::kMostBinLength; }
  uint64_t n_bins(uint64_t n) const { return (n + bin_length_ - 1) / bin_length_; }
  uint64_t most(uint64_t n) const { return sdk::kept_count(n, capacity_); }
  static uint64_t list_bytes(uint64_t n) { return sdk::whole_lines(n * sizeof(uint32_t)); }

  // With G = work and g the gradient: all i with |G + g| at least the largest |G| of the bin. G
  // contains g already, so an entry passes if one more such gradient would lift it above all
  // entries of today.
  Chosen choose(const sdk::Call& call, const sdk::Item& item, std::span<uint32_t> chosen) const {
    const std::span<const float> work = item.work();
    const std::span<const float> grad = item.grad();
    const auto unscale = static_cast<float>(sdk::work_unit(call, item) / call.step->grad_scale);
    double sum = 0;
    uint64_t count = 0;
    for (uint64_t begin = 0; begin < work.size(); begin += bin_length_) {
      const uint64_t end = std::min<uint64_t>(work.size(), begin + bin_length_);
      float largest = 0;
      for (uint64_t i = begin; i < end; ++i) largest = std::max(largest, std::fabs(work[i]));
      sum += largest;
      for (uint64_t i = begin; i < end; ++i) {
        chosen[count] = static_cast<uint32_t>(i);
        const bool passes = std::fabs(work[i] + grad[i] * unscale) >= largest;
        count += passes && work[i] != 0 ? 1 : 0;  // zero has no sign to send
      }
    }
    const auto bins = static_cast<double>(std::max<uint64_t>(1, n_bins(work.size())));
    return {count, static_cast<float>(sum / bins)};
  }

  // If more entries passed than the capacity, keeps the largest entries in the list. Returns the
  // number of entries.
  uint64_t cut(const sdk::Call& call, std::span<const float> work,
               std::span<uint32_t> chosen) const {
    const uint64_t wanted = most(work.size());
    if (chosen.size() <= wanted) return chosen.size();
    const uint64_t bytes = list_bytes(work.size());
    const std::span<float> values = call.scratch<float>(chosen.size(), bytes);
    const std::span<uint32_t> places = call.scratch<uint32_t>(wanted, 2 * bytes);
    for (uint64_t j = 0; j < chosen.size(); ++j) values[j] = work[chosen[j]];
    kernels::select_largest(values.data(), values.size(), wanted, places.data(), nullptr,
                            sdk::select_scratch(call, 3 * bytes), path_);
    for (uint64_t j = 0; j < wanted; ++j) chosen[j] = chosen[places[j]];
    return wanted;
  }

  template <typename Word>
  uint64_t write(std::span<const float> work, std::span<const uint32_t> chosen,
                 const sdk::PayloadWriter& payload) const {
    using Code = adacomp::Code<Word>;
    const std::span<Word> words = payload.room<Word>(0);
    uint64_t count = 0;
    uint64_t j = 0;
    for (uint64_t begin = 0; begin < work.size(); begin += bin_length_) {
      const uint64_t before = count;
      for (; j < chosen.size() && chosen[j] < begin + bin_length_; ++j)
        words[count++] =
            static_cast<Word>((chosen[j] - begin) | (work[chosen[j]] < 0 ? Code::kNegative : 0));
      if (count == before) words[count++] = static_cast<Word>(Code::kEmpty);
      words[count - 1] = static_cast<Word>(words[count - 1] | Code::kLast);
    }
    return count;
  }

  template <typename Word>
  void read(const sdk::PayloadReader& payload, float scale, std::span<float> out) const {
    using Code = adacomp::Code<Word>;
    const std::span<const Word> words = payload.section<Word>(0);
    if (!Code::walk(words, out.size(), bin_length_, [](uint64_t, bool) {}))
      throw payload.error("has ", words.size(), " words that do not encode the ",
                          n_bins(out.size()), " bins of ", out.size(), " entries");
    Code::walk(words, out.size(), bin_length_,
               [&](uint64_t index, bool negative) { out[index] += negative ? -scale : scale; });
  }

  uint64_t bin_length_;
  double capacity_;
  kernels::CodePath path_;
};

}  // namespace

PENSTOCK_COMPRESSOR(
    AdaComp, "compressor/adacomp", "0.1.0",
    "sends the entries that stand out in bins of neighbours, as signs",
    "Chen et al., AdaComp: Adaptive Residual Gradient Compression for Data-Parallel "
    "Distributed Training, AAAI 2018");

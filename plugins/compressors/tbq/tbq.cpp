// Threshold binary quantisation: an element whose magnitude reaches the threshold sends plus or
// minus the threshold, all others nothing; a memory keeps the rest.
// Source: Strom, "Scalable Distributed DNN Training Using Commodity GPU Cloud Computing",
// Interspeech 2015; as in Bai et al., "Gradient Compression Supercharged High-Performance Data
// Parallel DNN Training" (HiPress), SOSP 2021. See README.md for where this differs and why.
#include <kernels/on_code_path.hpp>
#include <kernels/pack_bits.hpp>
#include <methods/agreed.hpp>
#include <methods/dense.hpp>
#include <penstock/compressor.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;

namespace {

constexpr unsigned kBits = 2;
enum Code : uint8_t { kNothing = 0, kPlus = 1, kMinus = 2, kNoCode = 3 };

[[gnu::always_inline]] inline void encode_body(const float* x, uint64_t count, float threshold,
                                               uint8_t* codes) {
  for (uint64_t i = 0; i < count; ++i)
    codes[i] = static_cast<uint8_t>((x[i] >= threshold ? kPlus : kNothing) |
                                    (x[i] <= -threshold ? kMinus : kNothing));
}
void encode_codes(const float* x, uint64_t count, float threshold, uint8_t* codes,
                  kernels::CodePath path) {
  PENSTOCK_ON_CODE_PATH(path, void, encode_body,
                        (const float* x, uint64_t count, float threshold, uint8_t* codes),
                        (x, count, threshold, codes));
}

// x[i] += what codes[i] stands for
[[gnu::always_inline]] inline void add_body(const uint8_t* codes, uint64_t count, float threshold,
                                            float* x) {
  for (uint64_t i = 0; i < count; ++i) {
    const int sign = (codes[i] & kPlus) - (codes[i] >> 1);
    x[i] += static_cast<float>(sign) * threshold;
  }
}
void add_codes(const uint8_t* codes, uint64_t count, float threshold, float* x,
               kernels::CodePath path) {
  PENSTOCK_ON_CODE_PATH(path, void, add_body,
                        (const uint8_t* codes, uint64_t count, float threshold, float* x),
                        (codes, count, threshold, x));
}

class Tbq {
 public:
  static inline const sdk::OptionList options{
      sdk::real_option("threshold", 0.05)
          .at_least(std::numeric_limits<float>::min())
          .at_most(1e30)
          .summary("what an element must reach to be sent, and what is sent of it then")};

  explicit Tbq(const sdk::Options& values)
      : threshold_(static_cast<float>(values.real("threshold"))),
        path_(sdk::agreed_code_path("tbq")) {}

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
  }

  // The sum of codes of two bits needs more bits than two, so payloads are gathered.
  void plan(const sdk::PlanCall&, const sdk::Item& item, sdk::CompressorNeed& need) {
    need.round(PENSTOCK_COMBINE_GATHER)
        .section(PENSTOCK_ROLE_BITS, PENSTOCK_UINT64, kernels::packed_words(item.numel(), kBits))
        .section(PENSTOCK_ROLE_SCALES, PENSTOCK_FLOAT32, 1, true, PENSTOCK_SPLIT_COPY);
    need.part_alignment = 64;
  }

  // The threshold travels, in the units of work: with loss scaling and no memory those are not
  // the units of the option.
  void encode(const sdk::Call& call, const sdk::Item& item, sdk::PayloadWriter& payload) {
    const std::span<float> work = item.work();
    const std::span<uint64_t> words = payload.room<uint64_t>(kCodes);
    const auto threshold = static_cast<float>(threshold_ * sdk::work_unit(call, item));
    uint8_t codes[kTile];
    for (uint64_t at = 0; at < work.size(); at += kTile) {
      const uint64_t count = std::min(kTile, work.size() - at);
      encode_codes(work.data() + at, count, threshold, codes, path_);
      if (item.keeps()) add_codes(codes, count, -threshold, work.data() + at, path_);
      kernels::pack_bits(codes, count, kBits, words.data() + at / 64 * kBits);
    }
    payload.kind(PENSTOCK_PAYLOAD_CODED);
    payload.room<float>(kThreshold)[0] = threshold;
    payload.count(kCodes, words.size());
    payload.count(kThreshold, 1);
  }

  void decode(const sdk::Call& call, const sdk::Items& items, const sdk::PayloadReaders& payloads) {
    sdk::decode_gathered(
        call, items, payloads, check,
        [this](const sdk::PayloadReader& payload, uint64_t at, std::span<float> tile) {
          uint8_t codes[kTile];
          kernels::unpack_bits(payload.section<uint64_t>(kCodes).data() + at / 64 * kBits,
                               tile.size(), kBits, codes);
          add_codes(codes, tile.size(), payload.section<float>(kThreshold)[0], tile.data(), path_);
        });
  }

 private:
  enum Section : uint64_t { kCodes = 0, kThreshold = 1 };
  static constexpr uint64_t kTile = sdk::kGatheredTile;

  static void check(const sdk::PayloadReader& payload, uint64_t numel) {
    const auto words = payload.section<uint64_t>(kCodes, kernels::packed_words(numel, kBits));
    const float threshold = payload.section<float>(kThreshold, 1)[0];
    if (!(std::isfinite(threshold) && threshold > 0))
      throw payload.error("has threshold ", threshold, ", expected a finite one above 0");
    check_codes(payload, words, numel);
  }

  // Two bits have one code too many.
  static void check_codes(const sdk::PayloadReader& payload, std::span<const uint64_t> words,
                          uint64_t numel) {
    constexpr uint64_t kLowBits = 0x5555555555555555u;
    for (uint64_t w = 0; w < words.size(); ++w) {
      const uint64_t left = numel - w * 32;
      const uint64_t counted = left >= 32 ? ~uint64_t{0} : (uint64_t{1} << 2 * left) - 1;
      if ((words[w] & words[w] >> 1 & kLowBits & counted) != 0)
        throw payload.error("has code ", int{kNoCode}, " in word ", w, ", expected 0, 1 or 2");
    }
  }

  float threshold_;
  kernels::CodePath path_;
};

}  // namespace

PENSTOCK_COMPRESSOR(Tbq, "compressor/tbq", "0.1.0",
                    "2 bits per element: plus or minus a threshold, or nothing",
                    "Strom, Scalable Distributed DNN Training Using Commodity GPU Cloud Computing, "
                    "Interspeech 2015; Bai et al. (HiPress), SOSP 2021");

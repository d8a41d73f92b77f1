// Natural compression: each element is rounded by chance to one of the two powers of two next to
// it, so that a sign and an exponent, 8 bits, are all that is sent.
// Source: Horvath, Ho, Horvath, Sahu, Canini, Richtarik, "Natural Compression for Distributed Deep
// Learning", MSML 2022 (arXiv 1905.10988). See README.md for where this differs and why.
#include <kernels/stochastic.hpp>
#include <methods/agreed.hpp>
#include <methods/dense.hpp>
#include <penstock/compressor.hpp>

#include <algorithm>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;

namespace {

class Natural {
 public:
  static inline const sdk::OptionList options{};
  explicit Natural(const sdk::Options&) : on_(sdk::agreed_execution("stochastic")) {}

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_UNBIASED | PENSTOCK_COMPRESSOR_RANDOM;
  }

  // Sums of powers of two are no powers of two, so payloads are gathered and added here.
  void plan(const sdk::PlanCall&, const sdk::Item& item, sdk::CompressorNeed& need) {
    need.round(PENSTOCK_COMBINE_GATHER)
        .section(PENSTOCK_ROLE_BITS, PENSTOCK_UINT8, item.numel(), true, PENSTOCK_SPLIT_BY_ELEMENT)
        .section(PENSTOCK_ROLE_SCALES, PENSTOCK_UINT8, n_buckets(item.numel()));
    need.part_alignment = kBucket;
  }

  void encode(const sdk::Call& call, const sdk::Item& item, sdk::PayloadWriter& payload) {
    const std::span<float> work = item.work();
    const std::span<uint8_t> codes = payload.room<uint8_t>(kCodes);
    const std::span<uint8_t> bases = payload.room<uint8_t>(kBases);
    const kernels::RandomKey key = sdk::rounding_key(call, item);
    const auto encode_buckets = [&](uint32_t, uint64_t first, uint64_t last) {
      for (uint64_t b = first; b < last; ++b) {
        const uint64_t at = b * kBucket, count = std::min(kBucket, work.size() - at);
        const uint32_t base =
            kernels::power_base(kernels::largest_magnitude(work.data() + at, count, on_.path));
        bases[b] = static_cast<uint8_t>(base);
        kernels::round_to_powers(work.data() + at, count, base, key, item.c().first + at,
                                 item.keeps(), codes.data() + at, on_.path);
      }
    };
    on_.workers.for_rows(bases.size(), kBucket, 1, encode_buckets);
    payload.kind(PENSTOCK_PAYLOAD_CODED);
    payload.count(kCodes, codes.size());
    payload.count(kBases, bases.size());
  }

  void decode(const sdk::Call& call, const sdk::Items& items, const sdk::PayloadReaders& payloads) {
    sdk::decode_gathered(
        call, items, payloads, check,
        [this](const sdk::PayloadReader& payload, uint64_t at, std::span<float> tile) {
          kernels::add_powers(payload.section<uint8_t>(kCodes).data() + at, tile.size(),
                              payload.section<uint8_t>(kBases)[at / kBucket], false, tile.data(),
                              on_.path);
        });
  }

 private:
  enum Section : uint64_t { kCodes = 0, kBases = 1 };
  static constexpr uint64_t kBucket = 1024;  // elements that share a base
  static_assert(kBucket == sdk::kGatheredTile, "a tile has one base");

  static uint64_t n_buckets(uint64_t numel) { return (numel + kBucket - 1) / kBucket; }

  static void check(const sdk::PayloadReader& payload, uint64_t numel) {
    payload.section<uint8_t>(kCodes, numel);
    const auto bases = payload.section<uint8_t>(kBases, n_buckets(numel));
    for (uint64_t b = 0; b < bases.size(); ++b)
      if (bases[b] > kernels::kPowerCodes)
        throw payload.error("has base ", uint32_t{bases[b]}, " in bucket ", b,
                            ", expected at most ", kernels::kPowerCodes);
  }

  kernels::Execution on_;
};

}  // namespace

PENSTOCK_COMPRESSOR(Natural, "compressor/natural", "0.1.0",
                    "stochastic rounding to powers of two, 8 bits",
                    "Horvath et al., Natural Compression for Distributed Deep Learning, "
                    "MSML 2022");

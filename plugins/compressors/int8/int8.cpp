// Eight-bit floats of a fixed codebook: each element goes to the nearest of 256 multiples of the
// largest magnitude of its block.
// Source: Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016. See
// README.md for where this differs and why.
#include "codebook.hpp"

#include <methods/agreed.hpp>
#include <methods/dense.hpp>
#include <penstock/compressor.hpp>

#include <algorithm>
#include <cmath>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;
namespace int8 = penstock::int8;

namespace {

class Int8 {
 public:
  static inline const sdk::OptionList options{
      sdk::integer_option("block", 2048)
          .at_least(0)
          .at_most(1 << 20)
          .unit("elements")
          .summary("elements that share a scale; 0: all of a gradient")};

  explicit Int8(const sdk::Options& values)
      : blocks_{static_cast<uint64_t>(values.integer("block"))},
        on_(sdk::agreed_execution("int8")) {}

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
  }

  // Ranks have scales of their own and codes are not linear, so payloads are gathered.
  void plan(const sdk::PlanCall&, const sdk::Item& item, sdk::CompressorNeed& need) {
    need.round(PENSTOCK_COMBINE_GATHER)
        .section(PENSTOCK_ROLE_BITS, PENSTOCK_UINT8, item.numel())
        .section(PENSTOCK_ROLE_SCALES, PENSTOCK_FLOAT32, blocks_.count(item.numel()));
    need.part_alignment = blocks_.size;
  }

  void encode(const sdk::Call&, const sdk::Item& item, sdk::PayloadWriter& payload) {
    const std::span<float> work = item.work();
    const std::span<uint8_t> codes = payload.room<uint8_t>(kCodes);
    const std::span<float> scales = payload.room<float>(kScales);
    const auto encode_blocks = [&](uint32_t, uint64_t first, uint64_t last) {
      for (uint64_t b = first; b < last; ++b) {
        const std::span<float> x = blocks_.of(work, b);
        uint8_t* const to = codes.data() + b * blocks_.size;
        scales[b] = int8::largest_magnitude(x.data(), x.size(), on_.path);
        const float divisor = scales[b] > 0 ? scales[b] : 1;  // all zeros: any will do
        int8::encode(x.data(), x.size(), divisor, to, on_.path);
        if (item.keeps()) int8::subtract(to, x.size(), scales[b], x.data(), on_.path);
      }
    };
    on_.workers.for_rows(scales.size(), blocks_.size, 1, encode_blocks);
    payload.kind(PENSTOCK_PAYLOAD_CODED);
    payload.count(kCodes, codes.size());
    payload.count(kScales, scales.size());
  }

  void decode(const sdk::Call& call, const sdk::Items& items, const sdk::PayloadReaders& payloads) {
    sdk::decode_gathered(
        call, items, payloads,
        [this](const sdk::PayloadReader& payload, uint64_t numel) { check(payload, numel); },
        [this](const sdk::PayloadReader& payload, uint64_t at, std::span<float> tile) {
          const uint8_t* const codes = payload.section<uint8_t>(kCodes).data() + at;
          const auto scales = payload.section<float>(kScales);
          blocks_.for_each(at, tile, [&](uint64_t b, uint64_t offset, std::span<float> part) {
            int8::add(codes + offset, part.size(), scales[b], part.data(), on_.path);
          });
        });
  }

 private:
  enum Section : uint64_t { kCodes = 0, kScales = 1 };

  void check(const sdk::PayloadReader& payload, uint64_t numel) const {
    payload.section<uint8_t>(kCodes, numel);
    const auto scales = payload.section<float>(kScales, blocks_.count(numel));
    for (uint64_t b = 0; b < scales.size(); ++b)
      if (!(std::isfinite(scales[b]) && scales[b] >= 0))
        throw payload.error("has scale ", scales[b], " in block ", b,
                            ", expected a finite one that is not negative");
  }

  sdk::Buckets blocks_;
  kernels::Execution on_;
};

}  // namespace

PENSTOCK_COMPRESSOR(Int8, "compressor/int8", "0.1.0",
                    "8 bits per element from a codebook that is dense near zero",
                    "Dettmers, 8-Bit Approximations for Parallelism in Deep Learning, ICLR 2016");

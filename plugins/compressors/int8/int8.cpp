// Eight-bit floats of a fixed codebook: each element goes to the nearest of 256 multiples of the
// largest magnitude of its block.
// Source: Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016. See
// README.md for where this differs and why.
#include "codebook.hpp"

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
      : block_(static_cast<uint64_t>(values.integer("block"))),
        path_(kernels::code_path_named(sdk::code_path("int8"))) {}

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
  }

  // Ranks have scales of their own and codes are not linear, so payloads are gathered.
  void plan(const sdk::PlanCall&, const sdk::Item& item, sdk::CompressorNeed& need) {
    need.round(PENSTOCK_COMBINE_GATHER)
        .section(PENSTOCK_ROLE_BITS, PENSTOCK_UINT8, item.numel())
        .section(PENSTOCK_ROLE_SCALES, PENSTOCK_FLOAT32, blocks(item.numel()));
    need.part_alignment = block_;
  }

  void encode(const sdk::Call&, const sdk::Item& item, sdk::PayloadWriter& payload) {
    const std::span<float> work = item.work();
    const std::span<uint8_t> codes = payload.room<uint8_t>(kCodes);
    const std::span<float> scales = payload.room<float>(kScales);
    for (uint64_t b = 0; b < scales.size(); ++b) {
      const std::span<float> x = block_of(work, b);
      uint8_t* const to = codes.data() + b * block_;
      scales[b] = int8::largest_magnitude(x.data(), x.size(), path_);
      const float divisor = scales[b] > 0 ? scales[b] : 1;  // all zeros: any will do
      int8::encode(x.data(), x.size(), divisor, to, path_);
      if (item.keeps()) int8::subtract(to, x.size(), scales[b], x.data(), path_);
    }
    payload.kind(PENSTOCK_PAYLOAD_CODED);
    payload.count(kCodes, codes.size());
    payload.count(kScales, scales.size());
  }

  void decode_add(const sdk::Call&, const sdk::Item& item, const sdk::PayloadReader& payload) {
    const std::span<float> out = item.out();
    const auto codes = payload.section<uint8_t>(kCodes, out.size());
    const auto scales = payload.section<float>(kScales, blocks(out.size()));
    for (uint64_t b = 0; b < scales.size(); ++b)
      if (!(std::isfinite(scales[b]) && scales[b] >= 0))
        throw payload.error("has scale ", scales[b], " in block ", b,
                            ", expected a finite one that is not negative");
    for (uint64_t b = 0; b < scales.size(); ++b) {
      const std::span<float> x = block_of(out, b);
      int8::add(codes.data() + b * block_, x.size(), scales[b], x.data(), path_);
    }
  }

 private:
  enum Section : uint64_t { kCodes = 0, kScales = 1 };

  uint64_t blocks(uint64_t numel) const {
    if (block_ == 0) return numel == 0 ? 0 : 1;
    return (numel + block_ - 1) / block_;
  }
  std::span<float> block_of(std::span<float> all, uint64_t block) const {
    if (block_ == 0) return all;
    return all.subspan(block * block_, std::min(block_, all.size() - block * block_));
  }

  uint64_t block_;
  kernels::CodePath path_;
};

}  // namespace

PENSTOCK_COMPRESSOR(Int8, "compressor/int8", "0.1.0",
                    "8 bits per element from a codebook that is dense near zero",
                    "Dettmers, 8-Bit Approximations for Parallelism in Deep Learning, ICLR 2016");

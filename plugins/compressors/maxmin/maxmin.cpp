// Max-min quantisation: every block of elements is cut into 2^bits - 1 equal steps between its
// least and its greatest element, and each element goes to one of its two neighbours.
// Source: Markov, Ramezanikebrya, Alistarh, "CGX: Adaptive System Support for Communication-
// Efficient Deep Learning", Middleware 2022. See README.md for where this differs and why.
#include "levels.hpp"

#include <kernels/pack_bits.hpp>
#include <methods/agreed.hpp>
#include <methods/dense.hpp>
#include <penstock/compressor.hpp>

#include <algorithm>
#include <cmath>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;
namespace maxmin = penstock::maxmin;

namespace {

class MaxMin {
 public:
  static inline const sdk::OptionList options{
      sdk::integer_option("bits", 4).at_least(1).at_most(8).unit("bits").summary(
          "size of the code that stands for an element"),
      sdk::integer_option("block", 512)
          .at_least(64)
          .at_most(1 << 20)
          .unit("elements")
          .summary("elements that share a range; a multiple of 64"),
      sdk::choice_option("rounding", "stochastic", {"stochastic", "nearest"})
          .summary("stochastic: right on average; nearest: smaller errors, wants a memory")};

  explicit MaxMin(const sdk::Options& values)
      : bits_(static_cast<unsigned>(values.integer("bits"))),
        blocks_{static_cast<uint64_t>(values.integer("block"))},
        stochastic_(values.choice("rounding") == "stochastic"),
        on_(sdk::agreed_execution("maxmin")) {
    if (blocks_.size % 64 != 0)
      throw sdk::invalid_argument("maxmin: block is ", blocks_.size,
                                  ", expected a multiple of 64, such as ",
                                  (blocks_.size + 63) / 64 * 64);
  }

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = stochastic_ ? PENSTOCK_COMPRESSOR_UNBIASED | PENSTOCK_COMPRESSOR_RANDOM
                               : PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
  }

  // Ranks have ranges of their own, so codes cannot be added on the way.
  void plan(const sdk::PlanCall&, const sdk::Item& item, sdk::CompressorNeed& need) {
    need.round(PENSTOCK_COMBINE_GATHER)
        .section(PENSTOCK_ROLE_BITS, PENSTOCK_UINT64, kernels::packed_words(item.numel(), bits_))
        .section(PENSTOCK_ROLE_SCALES, PENSTOCK_FLOAT32, 2 * blocks_.count(item.numel()));
    need.part_alignment = blocks_.size;
  }

  void encode(const sdk::Call& call, const sdk::Item& item, sdk::PayloadWriter& payload) {
    const std::span<float> work = item.work();
    const std::span<uint64_t> words = payload.room<uint64_t>(kCodes);
    const std::span<float> scales = payload.room<float>(kScales);
    const kernels::RandomKey key = sdk::rounding_key(call, item);
    const auto encode_blocks = [&](uint32_t, uint64_t first, uint64_t last) {
      for (uint64_t b = first; b < last; ++b) {
        const std::span<float> of_block = blocks_.of(work, b);
        const maxmin::Range range = maxmin::range_of(of_block.data(), of_block.size(), on_.path);
        const maxmin::Levels levels = maxmin::levels_of(range, n_steps());
        scales[2 * b] = levels.low;
        scales[2 * b + 1] = levels.step;
        encode_block(of_block, levels, key, item.c().first + b * blocks_.size, item.keeps(),
                     words.data() + b * (blocks_.size / 64) * bits_);
      }
    };
    on_.workers.for_rows(scales.size() / 2, blocks_.size, 1, encode_blocks);
    payload.kind(PENSTOCK_PAYLOAD_CODED);
    payload.count(kCodes, words.size());
    payload.count(kScales, scales.size());
  }

  void decode(const sdk::Call& call, const sdk::Items& items, const sdk::PayloadReaders& payloads) {
    sdk::decode_gathered(
        call, items, payloads,
        [this](const sdk::PayloadReader& payload, uint64_t numel) { check(payload, numel); },
        [this](const sdk::PayloadReader& payload, uint64_t at, std::span<float> tile) {
          uint8_t codes[kTile];
          kernels::unpack_bits(payload.section<uint64_t>(kCodes).data() + at / 64 * bits_,
                               tile.size(), bits_, codes);
          const auto scales = payload.section<float>(kScales);
          blocks_.for_each(at, tile, [&](uint64_t b, uint64_t offset, std::span<float> part) {
            maxmin::add_levels(codes + offset, part.size(), {scales[2 * b], scales[2 * b + 1]},
                               part.data(), on_.path);
          });
        });
  }

 private:
  enum Section : uint64_t { kCodes = 0, kScales = 1 };
  static constexpr uint64_t kTile = sdk::kGatheredTile;  // stays in the first cache

  uint32_t n_steps() const { return (1u << bits_) - 1; }

  void check(const sdk::PayloadReader& payload, uint64_t numel) const {
    payload.section<uint64_t>(kCodes, kernels::packed_words(numel, bits_));
    const auto scales = payload.section<float>(kScales, 2 * blocks_.count(numel));
    for (uint64_t b = 0; b < blocks_.count(numel); ++b)
      if (!maxmin::usable({scales[2 * b], scales[2 * b + 1]}, n_steps()))
        throw payload.error("has in block ", b, " a least value of ", scales[2 * b],
                            " and a step of ", scales[2 * b + 1],
                            ", expected finite values and no negative step");
  }

  void encode_block(std::span<float> x, const maxmin::Levels& levels, kernels::RandomKey key,
                    uint64_t first, bool take_out, uint64_t* words) const {
    uint8_t codes[kTile];
    float draws[kTile];
    std::fill(draws, draws + kTile, 0.5f);  // a draw of one half is rounding to nearest
    for (uint64_t at = 0; at < x.size(); at += kTile) {
      const uint64_t count = std::min(kTile, x.size() - at);
      if (stochastic_) kernels::random_uniform(key, first + at, count, draws, on_.path);
      maxmin::round_to_levels(x.data() + at, count, levels, n_steps(), draws, codes, on_.path);
      if (take_out) maxmin::subtract_levels(codes, count, levels, x.data() + at, on_.path);
      kernels::pack_bits(codes, count, bits_, words + at / 64 * bits_);
    }
  }

  unsigned bits_;
  sdk::Buckets blocks_;
  bool stochastic_;
  kernels::Execution on_;
};

}  // namespace

PENSTOCK_COMPRESSOR(MaxMin, "compressor/maxmin", "0.1.0",
                    "1 to 8 bits per element between the least and greatest of its block",
                    "Markov, Ramezanikebrya, Alistarh, CGX: Adaptive System Support for "
                    "Communication-Efficient Deep Learning, Middleware 2022");

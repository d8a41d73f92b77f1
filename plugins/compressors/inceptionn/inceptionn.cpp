// Lossy floats by exponent: an element travels in 32, 16, 8 or no bits, depending on its magnitude,
// with an absolute error below a bound.
// Source: Li, Park, Alian, Yuan, Qu, Pan, Wang, Schwing, Esmaeilzadeh, Kim, "A Network-Centric
// Hardware/Algorithm Co-Design to Accelerate Distributed Training of Deep Neural Networks"
// (INCEPTIONN), MICRO 2018. See README.md for where this differs and why.
#include "classes.hpp"

#include <kernels/pack_bits.hpp>
#include <methods/agreed.hpp>
#include <penstock/compressor.hpp>

#include <algorithm>
#include <cstring>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;
namespace inceptionn = penstock::inceptionn;

namespace {

class Inceptionn {
 public:
  static inline const sdk::OptionList options{
      sdk::integer_option("bound_bits", 10)
          .at_least(1)
          .at_most(inceptionn::kMostBoundBits)
          .summary("b: errors stay below 2^-b, and elements below 2^-b are not sent")};

  explicit Inceptionn(const sdk::Options& values)
      : rule_(static_cast<unsigned>(values.integer("bound_bits"))),
        path_(sdk::agreed_code_path("inceptionn")) {}

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
  }

  // The number of bytes differs between ranks, so payloads are gathered, with counts.
  void plan(const sdk::PlanCall&, const sdk::Item& item, sdk::CompressorNeed& need) {
    need.round(PENSTOCK_COMBINE_GATHER)
        .section(PENSTOCK_ROLE_BITS, PENSTOCK_UINT64, kernels::packed_words(item.numel(), 2))
        .section(PENSTOCK_ROLE_OTHER, PENSTOCK_UINT8, 4 * item.numel(), false)
        .section(PENSTOCK_ROLE_SCALES, PENSTOCK_FLOAT32, 1, true, PENSTOCK_SPLIT_COPY);
    need.part_alignment = 64;
  }

  // The payload contains the unit: with loss scaling and no memory, work is the gradient times
  // grad_scale, but the bound holds for true values.
  void encode(const sdk::Call& call, const sdk::Item& item, sdk::PayloadWriter& payload) {
    const std::span<float> work = item.work();
    const std::span<uint64_t> words = payload.room<uint64_t>(kTags);
    const auto unit = static_cast<float>(sdk::work_unit(call, item));
    uint8_t tags[kTile];
    inceptionn::Counts counts;
    for (uint64_t at = 0; at < work.size(); at += kTile) {
      const uint64_t count = std::min(kTile, work.size() - at);
      inceptionn::classify(work.data() + at, count, rule_, unit, tags, path_);
      kernels::pack_bits(tags, count, 2, words.data() + at / 64 * 2);
      counts += inceptionn::count(words.data() + at / 64 * 2, count);
    }
    inceptionn::Streams<uint8_t> streams(payload.room<uint8_t>(kBytes).data(), counts);
    for (uint64_t at = 0; at < work.size(); at += kTile) {
      const uint64_t count = std::min(kTile, work.size() - at);
      kernels::unpack_bits(words.data() + at / 64 * 2, count, 2, tags);
      inceptionn::Tile tile;
      tile.encode(work.data() + at, tags, count, rule_, unit, path_);
      tile.store(streams);
      if (!item.keeps()) continue;
      float sent[kTile];
      tile.decode(tags, count, rule_, unit, sent, path_);
      for (uint64_t i = 0; i < count; ++i) work[at + i] -= sent[i];
    }
    payload.kind(PENSTOCK_PAYLOAD_CODED);
    payload.room<float>(kUnit)[0] = unit;
    payload.count(kTags, words.size());
    payload.count(kBytes, counts.bytes());
    payload.count(kUnit, 1);
  }

  void decode_add(const sdk::Call&, const sdk::Item& item, const sdk::PayloadReader& payload) {
    const std::span<float> out = item.out();
    const auto words = payload.section<uint64_t>(kTags, kernels::packed_words(out.size(), 2));
    const auto bytes = payload.section<uint8_t>(kBytes);
    const float unit = payload.section<float>(kUnit, 1)[0];
    const inceptionn::Counts counts = inceptionn::count(words.data(), out.size());
    check(payload, counts, bytes, unit);
    inceptionn::Streams<const uint8_t> streams(bytes.data(), counts);
    uint8_t tags[kTile];
    float sent[kTile];
    for (uint64_t at = 0; at < out.size(); at += kTile) {
      const uint64_t count = std::min(kTile, out.size() - at);
      const uint64_t* const of_tile = words.data() + at / 64 * 2;
      kernels::unpack_bits(of_tile, count, 2, tags);
      inceptionn::Tile tile;
      tile.load(streams, inceptionn::count(of_tile, count));
      tile.decode(tags, count, rule_, unit, sent, path_);
      for (uint64_t i = 0; i < count; ++i) out[at + i] += sent[i];
    }
  }

 private:
  enum Section : uint64_t { kTags = 0, kBytes = 1, kUnit = 2 };
  static constexpr uint64_t kTile = inceptionn::kTile;

  static void check(const sdk::PayloadReader& payload, const inceptionn::Counts& counts,
                    std::span<const uint8_t> bytes, float unit) {
    if (bytes.size() != counts.bytes())
      throw payload.error("has ", bytes.size(), " bytes of elements, expected ", counts.bytes(),
                          " for ", counts.floats, " of 32 bits, ", counts.halves, " of 16 and ",
                          counts.bytes_of_one, " of 8");
    if (!(std::isfinite(unit) && unit > 0))
      throw payload.error("has unit ", unit, ", expected a finite one above 0");
    for (uint64_t i = 0; i < counts.floats; ++i) {
      float value;
      std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
      if (!std::isfinite(value))
        throw payload.error("has ", value, " as element ", i,
                            " of 32 bits, expected finite values");
    }
  }

  inceptionn::Rule rule_;
  kernels::CodePath path_;
};

}  // namespace

PENSTOCK_COMPRESSOR(Inceptionn, "compressor/inceptionn", "0.1.0",
                    "32, 16, 8 or no bits per element by its exponent, errors below a bound",
                    "Li et al., A Network-Centric Hardware/Algorithm Co-Design to Accelerate "
                    "Distributed Training of Deep Neural Networks, MICRO 2018");

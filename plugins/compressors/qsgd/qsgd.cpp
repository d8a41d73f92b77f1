// QSGD: each bucket of elements is rounded by chance to a grid of equal steps that its norm spans,
// and sent with 2 to 8 bits per element.
// Source: Alistarh, Grubic, Li, Tomioka, Vojnovic, "QSGD: Communication-Efficient SGD via Gradient
// Quantization and Encoding", NeurIPS 2017. See README.md for where this differs and why.
#include <kernels/norm.hpp>
#include <kernels/pack_bits.hpp>
#include <kernels/stochastic.hpp>
#include <methods/agreed.hpp>
#include <methods/dense.hpp>
#include <penstock/compressor.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;

namespace {

class Qsgd {
 public:
  static inline const sdk::OptionList options{
      sdk::integer_option("bits", 4).at_least(2).at_most(8).unit("bits").summary(
          "bits per element: a sign and 2^(bits - 1) - 1 steps"),
      sdk::integer_option("bucket", 512)
          .at_least(0)
          .at_most(1 << 30)
          .unit("elements")
          .summary("elements that share a norm, a multiple of 64; 0: the whole gradient"),
      sdk::choice_option("norm", "l2", {"l2", "max"})
          .summary("what the grid spans: the Euclidean norm of a bucket or its largest magnitude")};

  explicit Qsgd(const sdk::Options& values)
      : bits_(static_cast<unsigned>(values.integer("bits"))),
        buckets_{static_cast<uint64_t>(values.integer("bucket"))},
        euclidean_(values.choice("norm") == "l2"),
        on_(sdk::agreed_execution("stochastic")) {
    if (buckets_.size % 64 != 0)
      throw sdk::invalid_argument("qsgd: bucket is ", buckets_.size,
                                  ", expected 0 or a multiple of 64; try ",
                                  (buckets_.size + 63) / 64 * 64);
  }

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_UNBIASED | PENSTOCK_COMPRESSOR_RANDOM;
  }

  // Steps differ between ranks, so payloads are gathered and added here.
  void plan(const sdk::PlanCall&, const sdk::Item& item, sdk::CompressorNeed& need) {
    need.round(PENSTOCK_COMBINE_GATHER)
        .section(PENSTOCK_ROLE_BITS, PENSTOCK_UINT64, kernels::packed_words(item.numel(), bits_))
        .section(PENSTOCK_ROLE_SCALES, PENSTOCK_FLOAT32, buckets_.count(item.numel()));
    need.part_alignment = buckets_.size;
  }

  void encode(const sdk::Call& call, const sdk::Item& item, sdk::PayloadWriter& payload) {
    const std::span<float> work = item.work();
    const std::span<uint64_t> words = payload.room<uint64_t>(kWords);
    const std::span<float> steps = payload.room<float>(kSteps);
    const kernels::RandomKey key = sdk::rounding_key(call, item);
    const auto encode_buckets = [&](uint32_t, uint64_t first, uint64_t last) {
      for (uint64_t b = first; b < last; ++b) {
        const std::span<float> bucket = buckets_.of(work, b);
        const kernels::Grid grid{step_of(bucket), levels()};
        steps[b] = grid.step;
        for (uint64_t in = 0; in < bucket.size(); in += kTile) {
          const uint64_t at = b * buckets_.size + in, count = std::min(kTile, bucket.size() - in);
          uint8_t codes[kTile];
          kernels::round_to_levels(work.data() + at, count, grid, key, item.c().first + at,
                                   item.keeps(), codes, on_.path);
          kernels::pack_bits(codes, count, bits_, words.data() + at / 64 * bits_);
        }
      }
    };
    on_.workers.for_rows(steps.size(), buckets_.size, 1, encode_buckets);
    payload.kind(PENSTOCK_PAYLOAD_CODED);
    payload.count(kWords, words.size());
    payload.count(kSteps, steps.size());
  }

  void decode(const sdk::Call& call, const sdk::Items& items, const sdk::PayloadReaders& payloads) {
    sdk::decode_gathered(
        call, items, payloads,
        [this](const sdk::PayloadReader& payload, uint64_t numel) { check(payload, numel); },
        [this](const sdk::PayloadReader& payload, uint64_t at, std::span<float> tile) {
          add_tile(payload, at, tile);
        });
  }

 private:
  enum Section : uint64_t { kWords = 0, kSteps = 1 };
  static constexpr uint64_t kTile = sdk::kGatheredTile;

  uint32_t levels() const { return (1u << (bits_ - 1)) - 1; }
  float step_of(std::span<const float> bucket) const {
    const double reach =
        euclidean_ ? std::sqrt(kernels::sum_of_squares(bucket.data(), bucket.size(), on_.path))
                   : double{kernels::largest_magnitude(bucket.data(), bucket.size(), on_.path)};
    return kernels::grid_step(reach, levels());
  }

  void check(const sdk::PayloadReader& payload, uint64_t numel) const {
    payload.section<uint64_t>(kWords, kernels::packed_words(numel, bits_));
    const auto steps = payload.section<float>(kSteps, buckets_.count(numel));
    for (uint64_t b = 0; b < steps.size(); ++b)
      if (!(steps[b] >= 0) || !std::isfinite(steps[b] * static_cast<float>(levels())))
        throw payload.error("has a step of ", steps[b], " in bucket ", b,
                            ", expected one of at least 0 that makes every level finite");
  }

  // Levels are in two's complement of as many bits as a code has; the lowest of those has no
  // counterpart of the other sign and is never sent.
  void add_tile(const sdk::PayloadReader& payload, uint64_t at, std::span<float> tile) const {
    const auto half = static_cast<uint8_t>(1u << (bits_ - 1));
    uint8_t codes[kTile];
    kernels::unpack_bits(payload.section<uint64_t>(kWords).data() + at / 64 * bits_, tile.size(),
                         bits_, codes);
    if (const void* wrong = std::memchr(codes, half, tile.size()); wrong != nullptr)
      throw payload.error("has level -", uint32_t{half}, " at element ",
                          at + static_cast<uint64_t>(static_cast<const uint8_t*>(wrong) - codes),
                          ", expected at most ", levels(), " in magnitude");
    for (uint64_t e = 0; e < tile.size(); ++e)
      codes[e] = static_cast<uint8_t>((codes[e] ^ half) - half);
    const auto steps = payload.section<float>(kSteps);
    buckets_.for_each(at, tile, [&](uint64_t bucket, uint64_t offset, std::span<float> part) {
      kernels::add_levels(codes + offset, part.size(), steps[bucket], false, part.data(), on_.path);
    });
  }

  unsigned bits_;
  sdk::Buckets buckets_;
  bool euclidean_;
  kernels::Execution on_;
};

}  // namespace

PENSTOCK_COMPRESSOR(Qsgd, "compressor/qsgd", "0.1.0",
                    "stochastic rounding to equal steps of each bucket's norm, 2 to 8 bits",
                    "Alistarh et al., QSGD: Communication-Efficient SGD via Gradient Quantization "
                    "and Encoding, NeurIPS 2017");

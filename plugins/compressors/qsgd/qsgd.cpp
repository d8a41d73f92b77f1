// QSGD: each bucket of elements is rounded by chance to a grid of equal steps that its norm spans,
// and sent with 2 to 8 bits per element.
// Source: Alistarh, Grubic, Li, Tomioka, Vojnovic, "QSGD: Communication-Efficient SGD via Gradient
// Quantization and Encoding", NeurIPS 2017. See README.md for where this differs and why.
#include <kernels/execution.hpp>
#include <kernels/norm.hpp>
#include <kernels/pack_bits.hpp>
#include <kernels/rounding_key.hpp>
#include <kernels/stochastic.hpp>
#include <kernels/stream.hpp>
#include <penstock/compressor.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;
namespace plugins = penstock::plugins;

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
        bucket_(static_cast<uint64_t>(values.integer("bucket"))),
        euclidean_(values.choice("norm") == "l2"),
        on_(kernels::code_path_named(sdk::code_path("stochastic")),
            kernels::Workers(sdk::workers())) {
    if (bucket_ % 64 != 0)
      throw sdk::invalid_argument("qsgd: bucket is ", bucket_,
                                  ", expected 0 or a multiple of 64; try ",
                                  (bucket_ + 63) / 64 * 64);
  }

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_UNBIASED | PENSTOCK_COMPRESSOR_RANDOM;
  }

  // Steps differ between ranks, so payloads are gathered and added here.
  void plan(const sdk::PlanCall&, const sdk::Item& item, sdk::CompressorNeed& need) {
    need.round(PENSTOCK_COMBINE_GATHER)
        .section(PENSTOCK_ROLE_BITS, PENSTOCK_UINT64, kernels::packed_words(item.numel(), bits_))
        .section(PENSTOCK_ROLE_SCALES, PENSTOCK_FLOAT32, n_buckets(item.numel()));
    need.part_alignment = bucket_;
  }

  void encode(const sdk::Call& call, const sdk::Item& item, sdk::PayloadWriter& payload) {
    const std::span<float> work = item.work();
    const std::span<uint64_t> words = payload.room<uint64_t>(kWords);
    const std::span<float> steps = payload.room<float>(kSteps);
    const kernels::RandomKey key = plugins::rounding_key(call, item);
    const auto encode_buckets = [&](uint32_t, uint64_t first, uint64_t last) {
      for (uint64_t b = first; b < last; ++b) {
        const uint64_t begin = b * bucket_, end = end_of(b, work.size());
        const kernels::Grid grid{step_of(work.subspan(begin, end - begin)), levels()};
        steps[b] = grid.step;
        for (uint64_t at = begin; at < end; at += kTile) {
          const uint64_t count = std::min(kTile, end - at);
          uint8_t codes[kTile];
          kernels::round_to_levels(work.data() + at, count, grid, key, item.c().first + at,
                                   item.keeps(), codes, on_.path);
          kernels::pack_bits(codes, count, bits_, words.data() + at / 64 * bits_);
        }
      }
    };
    on_.workers.for_rows(steps.size(), bucket_, 1, encode_buckets);
    payload.kind(PENSTOCK_PAYLOAD_CODED);
    payload.count(kWords, words.size());
    payload.count(kSteps, steps.size());
  }

  // Tile by tile, so that a tile of the result is written once however many ranks there are, and
  // past the caches where it is large.
  void decode(const sdk::Call& call, const sdk::Items& items, const sdk::PayloadReaders& payloads) {
    const bool first = (call.flags & PENSTOCK_DECODE_FIRST) != 0;
    for (uint64_t i = 0; i < items.size(); ++i) {
      const std::span<float> out = items[i].out();
      for (uint64_t r = 0; r < payloads.n_ranks(); ++r) check(payloads.at(i, r), out.size());
      const auto decode_range = [&](float* target, uint64_t begin, uint64_t count) {
        for (uint64_t at = begin, end = begin; at < begin + count; at = end) {
          const uint64_t b = bucket_ == 0 ? 0 : at / bucket_;
          end = std::min({at + kTile, end_of(b, out.size()), begin + count});
          const std::span<float> tile(target + (at - begin), end - at);
          if (first) std::fill(tile.begin(), tile.end(), 0.0f);
          for (uint64_t r = 0; r < payloads.n_ranks(); ++r)
            add_tile(payloads.at(i, r), b, at, tile);
        }
      };
      if (first)
        kernels::compute_streamed(out.data(), out.size(), decode_range);
      else
        decode_range(out.data(), 0, out.size());
    }
  }

 private:
  enum Section : uint64_t { kWords = 0, kSteps = 1 };
  static constexpr uint64_t kTile = 1024;  // elements; a multiple of 64, so tiles begin with a word

  uint32_t levels() const { return (1u << (bits_ - 1)) - 1; }
  uint64_t n_buckets(uint64_t numel) const {
    if (numel == 0) return 0;
    return bucket_ == 0 ? 1 : (numel + bucket_ - 1) / bucket_;
  }
  uint64_t end_of(uint64_t bucket, uint64_t numel) const {
    return bucket_ == 0 ? numel : std::min((bucket + 1) * bucket_, numel);
  }
  float step_of(std::span<const float> bucket) const {
    const double reach =
        euclidean_ ? std::sqrt(kernels::sum_of_squares(bucket.data(), bucket.size(), on_.path))
                   : double{kernels::largest_magnitude(bucket.data(), bucket.size(), on_.path)};
    return kernels::grid_step(reach, levels());
  }

  void check(const sdk::PayloadReader& payload, uint64_t numel) const {
    if (payload.absent()) return;
    payload.section<uint64_t>(kWords, kernels::packed_words(numel, bits_));
    const auto steps = payload.section<float>(kSteps, n_buckets(numel));
    for (uint64_t b = 0; b < steps.size(); ++b)
      if (!(steps[b] >= 0) || !std::isfinite(steps[b] * static_cast<float>(levels())))
        throw payload.error("has a step of ", steps[b], " in bucket ", b,
                            ", expected one of at least 0 that makes every level finite");
  }

  // Levels are in two's complement of as many bits as a code has; the lowest of those has no
  // counterpart of the other sign and is never sent.
  void add_tile(const sdk::PayloadReader& payload, uint64_t bucket, uint64_t at,
                std::span<float> out) const {
    if (payload.absent()) return;
    const auto half = static_cast<uint8_t>(1u << (bits_ - 1));
    uint8_t codes[kTile];
    kernels::unpack_bits(payload.section<uint64_t>(kWords).data() + at / 64 * bits_, out.size(),
                         bits_, codes);
    if (const void* wrong = std::memchr(codes, half, out.size()); wrong != nullptr)
      throw payload.error("has level -", uint32_t{half}, " at element ",
                          at + static_cast<uint64_t>(static_cast<const uint8_t*>(wrong) - codes),
                          ", expected at most ", levels(), " in magnitude");
    for (uint64_t e = 0; e < out.size(); ++e)
      codes[e] = static_cast<uint8_t>((codes[e] ^ half) - half);
    kernels::add_levels(codes, out.size(), payload.section<float>(kSteps)[bucket], false,
                        out.data(), on_.path);
  }

  unsigned bits_;
  uint64_t bucket_;
  bool euclidean_;
  kernels::Execution on_;
};

}  // namespace

PENSTOCK_COMPRESSOR(Qsgd, "compressor/qsgd", "0.1.0",
                    "stochastic rounding to equal steps of each bucket's norm, 2 to 8 bits",
                    "Alistarh et al., QSGD: Communication-Efficient SGD via Gradient Quantization "
                    "and Encoding, NeurIPS 2017");

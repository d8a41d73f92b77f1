// Random-k: sends the entries at random positions. All ranks draw equal positions, so only values
// travel, which are summed on the way.
// Source: Stich, Cordonnier, Jaggi, "Sparsified SGD with Memory", NeurIPS 2018. See README.md for
// how positions are drawn.
#include <kernels/strata.hpp>
#include <methods/agreed.hpp>
#include <methods/density.hpp>
#include <methods/device/drawn.hpp>
#include <methods/summed_values.hpp>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;

namespace {

// The k positions of a step, drawn by the method of kernels/strata.hpp. A part of a gradient draws
// the random words of its own elements.
class Positions {
 public:
  Positions(const sdk::Call& call, const sdk::Item& item, uint64_t k, kernels::CodePath path)
      : first_(item.c().first),
        key_(kernels::random_key(
            {call.step->seed, item.c().gradient,
             kernels::stream_of_step(kernels::kStreamSelection, call.step->index)})),
        path_(path),
        strata_(item.numel(), k, word_of(k)) {}

  // The positions of draws [draw, draw + count), count at most SummedValues::kTile.
  void fill(uint64_t draw, uint64_t count, uint32_t* positions) const {
    kernels::random_words(key_, first_ + draw, count, positions, path_);
    for (uint64_t j = 0; j < count; ++j) positions[j] = strata_.position(draw + j, positions[j]);
  }
  sdk::device::DrawnStrata for_device() const { return {strata_, key_, first_}; }

 private:
  uint32_t word_of(uint64_t draw) const {
    uint32_t word;
    kernels::random_words(key_, first_ + draw, 1, &word, path_);
    return word;
  }

  uint64_t first_;
  kernels::RandomKey key_;
  kernels::CodePath path_;
  kernels::Strata strata_;
};

class RandomK {
 public:
  static inline const sdk::OptionList options{
      sdk::density_option(0.01, "share of the entries that is sent"),
      sdk::bool_option("unbiased", true)
          .summary("if no memory keeps the rest, multiply the sent values by n / k"),
      sdk::SummedValues::option()};

  explicit RandomK(const sdk::Options& values)
      : density_(values.real("density")),
        unbiased_(values.boolean("unbiased")),
        values_(values),
        path_(sdk::agreed_code_path("")) {}

  static constexpr bool kScalesResult = true;

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_RANDOM;
    traits.flags |= unbiased_ ? PENSTOCK_COMPRESSOR_UNBIASED : PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
    traits.device_types = sdk::device::kWhereKernelsAre;
  }

  void plan(const sdk::PlanCall&, const sdk::Item& item, sdk::CompressorNeed& need) {
    sdk::check_indexable(item, "random-k");
    need.round(PENSTOCK_COMBINE_SUM)
        .section(PENSTOCK_ROLE_VALUES, values_.dtype(), kept(item.numel()));
    need.part_alignment = 1;
    if (values_.dtype() == PENSTOCK_FLOAT32) need.flags = PENSTOCK_NEED_LINEAR;
  }

  void encode(const sdk::Call& call, const sdk::Item& item, sdk::PayloadWriter& payload) {
    payload.kind(PENSTOCK_PAYLOAD_CODED);
    payload.count(0, kept(item.numel()));
    if constexpr (sdk::device::kHasKernels)
      if (call.on_device()) return encode_on_device(call, item, payload);
    const std::span<float> work = item.work();
    float values[sdk::SummedValues::kTile];
    each_tile(call, item, [&](uint64_t draw, uint64_t count, const uint32_t* positions) {
      for (uint64_t j = 0; j < count; ++j) values[j] = work[positions[j]];
      values_.pack(values, count, payload, draw, call.step->world);
      if (!item.keeps()) return;
      for (uint64_t j = 0; j < count; ++j) {
        float& entry = work[positions[j]];
        entry = sdk::SummedValues::left_over(entry, values[j]);
      }
    });
  }

  void decode(const sdk::Call& call, const sdk::Items& items, const sdk::PayloadReaders& payloads) {
    for (uint64_t i = 0; i < items.size(); ++i) {
      const std::span<float> out = items[i].out();
      const sdk::PayloadReader payload = payloads.at(i, 0);
      if constexpr (sdk::device::kHasKernels)
        if (call.on_device()) {
          decode_on_device(call, items[i], payload);
          continue;
        }
      if (payload.absent() || out.empty()) {
        std::fill(out.begin(), out.end(), 0.0f);
        continue;
      }
      const sdk::SummedValues::Sum sum(values_, payload, kept(out.size()));
      std::fill(out.begin(), out.end(), 0.0f);
      const float scale = scale_of(items[i]), mean = call.result_scale();
      float values[sdk::SummedValues::kTile];
      each_tile(call, items[i], [&](uint64_t draw, uint64_t count, const uint32_t* positions) {
        sum.read(draw, count, values);
        for (uint64_t j = 0; j < count; ++j) out[positions[j]] = values[j] * scale * mean;
      });
    }
  }

 private:
  uint64_t kept(uint64_t n) const { return sdk::kept_count(n, density_); }

  void encode_on_device(const sdk::Call& call, const sdk::Item& item,
                        const sdk::PayloadWriter& payload) const {
    if (item.numel() == 0) return;
    const Positions drawn(call, item, kept(item.numel()), path_);
    sdk::device::take_drawn(call, item, values_, drawn.for_device(), payload);
  }

  void decode_on_device(const sdk::Call& call, const sdk::Item& item,
                        const sdk::PayloadReader& payload) const {
    if (payload.absent() || item.numel() == 0) return sdk::device::clear(call, item, item.out());
    const sdk::SummedValues::Sum sum(values_, payload, kept(item.numel()));
    const Positions drawn(call, item, kept(item.numel()), path_);
    sdk::device::spread_drawn(call, item, values_, sum, drawn.for_device(), scale_of(item));
  }

  // If a memory sends the rest in a later step, values are sent unscaled: with the factor n / k
  // more would arrive than the gradient contains.
  float scale_of(const sdk::Item& item) const {
    if (item.rest_follows() || !unbiased_) return 1;
    return static_cast<float>(static_cast<double>(item.numel()) /
                              static_cast<double>(kept(item.numel())));
  }

  // Calls body(first draw, number of draws, their positions).
  template <typename Body>
  void each_tile(const sdk::Call& call, const sdk::Item& item, Body&& body) const {
    const uint64_t k = kept(item.numel());
    if (k == 0) return;
    const Positions drawn(call, item, k, path_);
    uint32_t positions[sdk::SummedValues::kTile];
    for (uint64_t draw = 0; draw < k; draw += sdk::SummedValues::kTile) {
      const uint64_t count = std::min(sdk::SummedValues::kTile, k - draw);
      drawn.fill(draw, count, positions);
      body(draw, count, positions);
    }
  }

  double density_;
  bool unbiased_;
  sdk::SummedValues values_;
  kernels::CodePath path_;
};

}  // namespace

PENSTOCK_COMPRESSOR(RandomK, "compressor/randomk", "0.1.0",
                    "sends entries at random positions that all ranks draw alike, values only",
                    "Stich, Cordonnier, Jaggi, Sparsified SGD with Memory, NeurIPS 2018");

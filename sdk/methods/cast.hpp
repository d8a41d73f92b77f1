// Casts: methods that send every element as a 16-bit float. The transport sums their payloads, or
// each receiver does.
#pragma once

#include <kernels/narrow_values.hpp>
#include <kernels/stochastic_cast.hpp>
#include <kernels/stream.hpp>
#include <methods/agreed.hpp>
#include <methods/device/summed.hpp>
#include <methods/draws.hpp>
#include <methods/folded.hpp>
#include <penstock/compressor.hpp>
#include <penstock/options.hpp>

#include <algorithm>
#include <span>

namespace penstock::sdk {

// A compressor that sends each value as a 16-bit float, in one round. Its format is given by a
// dtype, the largest number that each of so many ranks may send, and the conversions (convert.hpp).
// Option `rounding` chooses the neighbour that is nearest, or one of both at random. Option
// `combine` chooses who adds: the transport, which rounds the sum to the type, or the receiver in
// float32. If the device kernels are linked (device/), the compressor also works on a device, with
// the first value of both options.
template <uint32_t kDtype, auto kShare, auto kNarrow, auto kWiden>
class HalfCast {
 public:
  static constexpr bool kScalesResult = true;
  static constexpr bool kInspects = true;
  static constexpr uint64_t kMeanDtypes = PENSTOCK_DTYPE_BIT(kDtype);
  static inline const OptionList options{
      choice_option("rounding", "nearest", {"nearest", "stochastic"})
          .summary("nearest: smaller errors; stochastic: up or down at random, so that the values "
                   "that a rank sends are right on average (on the CPU only)"),
      choice_option("combine", "sum", {"sum", "gather"})
          .summary("sum: the transport adds in float32 and rounds the sum; gather: receivers get "
                   "the values of every rank and keep their sum in float32 (on the CPU only)")};
  explicit HalfCast(const Options& values)
      : stochastic_(values.choice("rounding") == "stochastic"),
        gathers_(values.choice("combine") == "gather"),
        path_(agreed_code_path("")) {}

  void describe(penstock_compressor_traits& traits) const {
    traits.folds = kAllFolds;
    if (stochastic_) traits.flags |= PENSTOCK_COMPRESSOR_UNBIASED | PENSTOCK_COMPRESSOR_RANDOM;
    if (!stochastic_ && !gathers_) traits.device_types = device::kWhereKernelsAre;
  }

  void plan(const PlanCall&, const Item& item, CompressorNeed& need) {
    need.round(gathers_ ? PENSTOCK_COMBINE_GATHER : PENSTOCK_COMBINE_SUM)
        .section(PENSTOCK_ROLE_VALUES, kDtype, item.numel(), true, PENSTOCK_SPLIT_BY_ELEMENT);
    need.part_alignment = 1;
  }

  void encode(const Call& call, const Items& items, PayloadWriters& payloads) {
    encode_folded(call, items, payloads, nullptr);
  }

  void encode_folded(const Call& call, const Items& items, PayloadWriters& payloads,
                     const penstock_fold* const* folds) {
    const float limit = kShare(gathers_ ? 1 : call.step->world);
    if constexpr (device::kHasKernels)
      if (call.on_device()) return encode_on_device(call, items, payloads, folds, limit);
    encode_each(call, items, payloads, folds,
                [&](const Item& item, PayloadWriter& payload, const kernels::Fold* fold) {
                  const std::span<float> work = item.work();
                  const std::span<uint16_t> bits = room_for(item, payload);
                  const Draws draws{rounding_key(call, item), item.c().first};
                  if (fold != nullptr) kernels::compensate(*fold, work.size(), path_);
                  if (item.keeps())
                    take_out(work, bits, limit, draws);
                  else
                    narrow(work, draws, bits.data());
                });
  }

  void decode(const Call& call, const Items& items, const PayloadReaders& payloads) {
    if constexpr (device::kHasKernels)
      if (call.on_device()) return decode_on_device(call, items, payloads);
    if (gathers_) return decode_gathered(call, items, payloads);
    for (uint64_t i = 0; i < items.size(); ++i) {
      const PayloadReader payload = payloads.at(i, 0);
      const std::span<float> out = items[i].out();
      if (payload.absent())
        std::fill(out.begin(), out.end(), 0.0f);
      else
        widen(payload.section<uint16_t>(0, out.size()), call.result_scale(), out);
    }
  }

 private:
  static constexpr uint64_t kTile = 1024;
  static constexpr kernels::ValueType kType =
      kDtype == PENSTOCK_FLOAT16 ? kernels::ValueType::kFloat16 : kernels::ValueType::kBfloat16;

  static std::span<uint16_t> room_for(const Item& item, PayloadWriter& payload) {
    payload.kind(PENSTOCK_PAYLOAD_DENSE);
    payload.count(0, item.numel());
    return payload.room<uint16_t>(0);
  }

  static void encode_on_device(const Call& call, const Items& items, PayloadWriters& payloads,
                               const penstock_fold* const* folds, float limit) {
    const auto queue = [&](auto some, void* stream) {
      return kernels::cuda::take_narrow(kType, some, limit, stream);
    };
    auto all = device::together_on_device<kernels::cuda::NarrowRequest>(call, "round", queue);
    encode_each(call, items, payloads, folds,
                [&](const Item& item, PayloadWriter& payload, const kernels::Fold* fold) {
                  all.add(item, device::narrow_request(item, room_for(item, payload), fold));
                });
    all.flush();
  }

  static void decode_on_device(const Call& call, const Items& items,
                               const PayloadReaders& payloads) {
    const auto queue = [&](auto some, void* stream) {
      return kernels::cuda::widen_scaled(kType, some, call.result_scale(), stream);
    };
    auto all =
        device::together_on_device<kernels::cuda::WidenRequest>(call, "widen the sum of", queue);
    for (uint64_t i = 0; i < items.size(); ++i) {
      const PayloadReader payload = payloads.at(i, 0);
      const std::span<float> out = items[i].out();
      if (payload.absent())
        device::clear_floats(call, items[i], out);
      else
        all.add(items[i],
                {payload.section<uint16_t>(0, out.size()).data(), out.data(), out.size()});
    }
    all.flush();
  }

  // out (+)= the values of each rank, in ascending order of ranks.
  static void decode_gathered(const Call& call, const Items& items,
                              const PayloadReaders& payloads) {
    const bool first = (call.flags & PENSTOCK_DECODE_FIRST) != 0;
    for (uint64_t i = 0; i < items.size(); ++i) {
      const std::span<float> out = items[i].out();
      for (uint64_t r = 0; r < payloads.n_ranks(); ++r)  // all are checked before any is added
        if (!payloads.at(i, r).absent())
          payloads.at(i, r).template section<uint16_t>(0, out.size());
      const auto add_range = [&](float* target, uint64_t begin, uint64_t count) {
        for (uint64_t at = 0; at < count; at += kTile) {
          const std::span<float> tile(target + at, std::min(kTile, count - at));
          if (first) std::fill(tile.begin(), tile.end(), 0.0f);
          for (uint64_t r = 0; r < payloads.n_ranks(); ++r)
            if (!payloads.at(i, r).absent()) add(payloads.at(i, r), begin + at, tile);
          if (const float scale = call.result_scale(); scale != 1)
            for (float& value : tile) value *= scale;
        }
      };
      if (first)
        kernels::compute_streamed(out.data(), out.size(), add_range);
      else
        add_range(out.data(), 0, out.size());
    }
  }

  static void add(const PayloadReader& payload, uint64_t first, std::span<float> tile) {
    float values[kTile];
    kWiden(payload.section<uint16_t>(0).data() + first, values, tile.size());
    for (uint64_t k = 0; k < tile.size(); ++k) tile[k] += values[k];
  }

  static void widen(std::span<const uint16_t> bits, float scale, std::span<float> out) {
    if (scale == 1) return kWiden(bits.data(), out.data(), out.size());
    for (uint64_t begin = 0; begin < out.size(); begin += kTile) {
      const std::span<float> tile = out.subspan(begin, std::min(kTile, out.size() - begin));
      kWiden(bits.data() + begin, tile.data(), tile.size());
      for (float& value : tile) value *= scale;
    }
  }

  // bits = rounded values.
  void narrow(std::span<const float> values, const Draws& draws, uint16_t* bits) const {
    if (stochastic_)
      kernels::cast_by_chance(kType, values.data(), values.size(), draws.key, draws.first, bits,
                              path_);
    else
      kNarrow(values.data(), bits, values.size());
  }

  // work -= bits = rounded work. The part of a value that exceeds `limit` stays in work too: then
  // neither a value nor the sum over ranks overflows, and nothing is lost to an infinity.
  void take_out(std::span<float> work, std::span<uint16_t> bits, float limit,
                const Draws& draws) const {
    float values[kTile];
    for (uint64_t begin = 0; begin < work.size(); begin += kTile) {
      const uint64_t size = std::min(kTile, work.size() - begin);
      float* tile = work.data() + begin;
      for (uint64_t i = 0; i < size; ++i) values[i] = std::clamp(tile[i], -limit, limit);
      narrow({values, size}, {draws.key, draws.first + begin}, bits.data() + begin);
      kWiden(bits.data() + begin, values, size);
      for (uint64_t i = 0; i < size; ++i) tile[i] -= values[i];
    }
  }

  bool stochastic_;
  bool gathers_;
  kernels::CodePath path_;
};

}  // namespace penstock::sdk

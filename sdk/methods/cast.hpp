// Casts: methods that send every element as a 16-bit float; the transport sums their payloads.
#pragma once

#include <kernels/narrow_values.hpp>
#include <methods/agreed.hpp>
#include <methods/device/summed.hpp>
#include <methods/folded.hpp>
#include <penstock/compressor.hpp>
#include <penstock/options.hpp>

#include <algorithm>
#include <span>

namespace penstock::sdk {

// A compressor that sends each value as a 16-bit float, in one round with combine rule sum. Its
// format is given by a dtype, the largest number that each of so many ranks may send, and the
// conversions (convert.hpp). If the device kernels are linked (device/), it also works on a device.
template <uint32_t kDtype, auto kShare, auto kNarrow, auto kWiden>
class HalfCast {
 public:
  static constexpr bool kScalesResult = true;
  static constexpr bool kInspects = true;
  static constexpr uint64_t kMeanDtypes = PENSTOCK_DTYPE_BIT(kDtype);
  static inline const OptionList options{};
  explicit HalfCast(const Options&) : path_(agreed_code_path("")) {}

  void describe(penstock_compressor_traits& traits) const {
    traits.folds = kAllFolds;
    traits.device_types = device::kWhereKernelsAre;
  }

  void plan(const PlanCall&, const Item& item, CompressorNeed& need) {
    need.round(PENSTOCK_COMBINE_SUM)
        .section(PENSTOCK_ROLE_VALUES, kDtype, item.numel(), true, PENSTOCK_SPLIT_BY_ELEMENT);
    need.part_alignment = 1;
  }

  void encode(const Call& call, const Items& items, PayloadWriters& payloads) {
    encode_folded(call, items, payloads, nullptr);
  }

  void encode_folded(const Call& call, const Items& items, PayloadWriters& payloads,
                     const penstock_fold* const* folds) {
    const float limit = kShare(call.step->world);
    if constexpr (device::kHasKernels)
      if (call.on_device()) return encode_on_device(call, items, payloads, folds, limit);
    encode_each(call, items, payloads, folds,
                [&](const Item& item, PayloadWriter& payload, const kernels::Fold* fold) {
                  const std::span<float> work = item.work();
                  const std::span<uint16_t> bits = room_for(item, payload);
                  if (fold != nullptr) kernels::compensate(*fold, work.size(), path_);
                  if (item.keeps())
                    take_out(work, bits, limit);
                  else
                    kNarrow(work.data(), bits.data(), work.size());
                });
  }

  void decode(const Call& call, const Items& items, const PayloadReaders& payloads) {
    if constexpr (device::kHasKernels)
      if (call.on_device()) return decode_on_device(call, items, payloads);
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

  static void widen(std::span<const uint16_t> bits, float scale, std::span<float> out) {
    if (scale == 1) return kWiden(bits.data(), out.data(), out.size());
    for (uint64_t begin = 0; begin < out.size(); begin += kTile) {
      const std::span<float> tile = out.subspan(begin, std::min(kTile, out.size() - begin));
      kWiden(bits.data() + begin, tile.data(), tile.size());
      for (float& value : tile) value *= scale;
    }
  }

  // work -= bits = rounded work. The part of a value that exceeds `limit` stays in work too: then
  // neither a value nor the sum over ranks overflows, and nothing is lost to an infinity.
  static void take_out(std::span<float> work, std::span<uint16_t> bits, float limit) {
    float values[kTile];
    for (uint64_t begin = 0; begin < work.size(); begin += kTile) {
      const uint64_t size = std::min(kTile, work.size() - begin);
      float* tile = work.data() + begin;
      for (uint64_t i = 0; i < size; ++i) values[i] = std::clamp(tile[i], -limit, limit);
      kNarrow(values, bits.data() + begin, size);
      kWiden(bits.data() + begin, values, size);
      for (uint64_t i = 0; i < size; ++i) tile[i] -= values[i];
    }
  }

  kernels::CodePath path_;
};

}  // namespace penstock::sdk

// Compressors that send each value as a 16-bit float and sum ranks on the way: one method for every
// such format.
//
// `Format` names a format:
//   static constexpr uint32_t kDtype;      // PENSTOCK_FLOAT16, ...
//   static float share(uint32_t ranks);    // the largest that so many may send (convert.hpp)
//   static void narrow(const float* source, uint16_t* bits, uint64_t count);
//   static void widen(const uint16_t* bits, float* target, uint64_t count);
#pragma once

#include <penstock/compressor.hpp>

#include <algorithm>

namespace penstock::plugins {

template <typename Format>
class HalfCast {
 public:
  static inline const sdk::OptionList options{};
  explicit HalfCast(const sdk::Options&) {}

  void plan(const sdk::PlanCall&, const sdk::Item& item, sdk::CompressorNeed& need) {
    need.round(PENSTOCK_COMBINE_SUM)
        .section(PENSTOCK_ROLE_VALUES, Format::kDtype, item.numel(), true,
                 PENSTOCK_SPLIT_BY_ELEMENT);
    need.part_alignment = 1;
  }

  void encode(const sdk::Call& call, const sdk::Item& item, sdk::PayloadWriter& payload) {
    const std::span<float> work = item.work();
    const std::span<uint16_t> bits = payload.room<uint16_t>(0);
    if (item.keeps())
      take_out(work, bits, Format::share(call.step->world));
    else
      Format::narrow(work.data(), bits.data(), work.size());
    payload.kind(PENSTOCK_PAYLOAD_DENSE);
    payload.count(0, work.size());
  }

  void decode(const sdk::Call&, const sdk::Items& items, const sdk::PayloadReaders& payloads) {
    for (uint64_t i = 0; i < items.size(); ++i) {
      const sdk::PayloadReader payload = payloads.at(i, 0);
      const std::span<float> out = items[i].out();
      if (payload.absent())
        std::fill(out.begin(), out.end(), 0.0f);
      else
        Format::widen(payload.section<uint16_t>(0, out.size()).data(), out.data(), out.size());
    }
  }

 private:
  static constexpr uint64_t kTile = 1024;

  // work -= bits = rounded work. What exceeds `limit` stays in work too: then neither a value nor
  // the sum over ranks overflows, and nothing is lost to an infinity.
  static void take_out(std::span<float> work, std::span<uint16_t> bits, float limit) {
    float values[kTile];
    for (uint64_t begin = 0; begin < work.size(); begin += kTile) {
      const uint64_t size = std::min(kTile, work.size() - begin);
      float* tile = work.data() + begin;
      for (uint64_t i = 0; i < size; ++i) values[i] = std::clamp(tile[i], -limit, limit);
      Format::narrow(values, bits.data() + begin, size);
      Format::widen(bits.data() + begin, values, size);
      for (uint64_t i = 0; i < size; ++i) tile[i] -= values[i];
    }
  }
};

}  // namespace penstock::plugins

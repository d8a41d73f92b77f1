// Methods that send something for every element: what those whose payloads cannot be added on the
// way decode with, and casts to 16 bits, which can.
#pragma once

#include <kernels/random_uniform.hpp>
#include <kernels/stream.hpp>
#include <penstock/compressor.hpp>

#include <algorithm>
#include <span>

namespace penstock::sdk {

// Elements that are decoded at once; tiles begin at its multiples. A multiple of 64, so that codes
// of any number of bits begin with a word.
inline constexpr uint64_t kGatheredTile = 1024;
static_assert(kernels::kStreamTile % kGatheredTile == 0);

// out (+)= what each rank sent, ranks in ascending order. A tile of the result is written once
// however many ranks there are, and past the caches where the result is large.
//   check(payload, numel)   throws for a payload that no rank of ours would send; all payloads of
//                           an item are checked before any is added
//   add(payload, at, tile)  adds elements at, at + 1, ... of a payload to the tile
template <typename Check, typename Add>
void decode_gathered(const Call& call, const Items& items, const PayloadReaders& payloads,
                     const Check& check, const Add& add) {
  const bool first = (call.flags & PENSTOCK_DECODE_FIRST) != 0;
  for (uint64_t i = 0; i < items.size(); ++i) {
    const std::span<float> out = items[i].out();
    for (uint64_t r = 0; r < payloads.n_ranks(); ++r)
      if (!payloads.at(i, r).absent()) check(payloads.at(i, r), out.size());
    const auto decode_range = [&](float* target, uint64_t begin, uint64_t count) {
      for (uint64_t at = 0; at < count; at += kGatheredTile) {
        const std::span<float> tile(target + at, std::min(kGatheredTile, count - at));
        if (first) std::fill(tile.begin(), tile.end(), 0.0f);
        for (uint64_t r = 0; r < payloads.n_ranks(); ++r)
          if (!payloads.at(i, r).absent()) add(payloads.at(i, r), begin + at, tile);
      }
    };
    if (first)
      kernels::compute_streamed(out.data(), out.size(), decode_range);
    else
      decode_range(out.data(), 0, out.size());
  }
}

// A cut of the elements of an item into buckets of `size`; 0: all of them are one.
struct Buckets {
  uint64_t size;

  uint64_t count(uint64_t numel) const {
    if (size == 0) return numel == 0 ? 0 : 1;
    return (numel + size - 1) / size;
  }
  std::span<float> of(std::span<float> all, uint64_t bucket) const {
    return size == 0 ? all : all.subspan(bucket * size, std::min(size, all.size() - bucket * size));
  }
  // Calls body(bucket, offset, part) for each bucket that a tile from element `at` on touches:
  // part is what it has of the tile, which begins `offset` elements behind the tile's beginning.
  template <typename Body>
  void for_each(uint64_t at, std::span<float> tile, const Body& body) const {
    for (uint64_t offset = 0; offset < tile.size();) {
      const uint64_t bucket = size == 0 ? 0 : (at + offset) / size;
      const uint64_t left = size == 0 ? tile.size() : (bucket + 1) * size - at;
      const uint64_t end = std::min<uint64_t>(tile.size(), left);
      body(bucket, offset, tile.subspan(offset, end - offset));
      offset = end;
    }
  }
};

// The key of this item's rounding in this step: another on each rank and on each leg of a route, so
// that errors of several roundings are independent. Elements count from the start of the gradient
// (item.c().first + i), whatever part of it the item is.
inline kernels::RandomKey rounding_key(const Call& call, const Item& item) {
  return kernels::random_key({call.step->seed, item.c().gradient,
                              kernels::stream_of_step(kernels::kStreamRounding, call.step->index),
                              uint64_t{item.c().leg} << 32 | call.step->rank});
}

// Compressors that send each value as a 16-bit float and sum ranks on the way: one method for every
// such format.
//
// `Format` names a format:
//   static constexpr uint32_t kDtype;      // PENSTOCK_FLOAT16, ...
//   static float share(uint32_t ranks);    // the largest that so many may send (convert.hpp)
//   static void narrow(const float* source, uint16_t* bits, uint64_t count);
//   static void widen(const uint16_t* bits, float* target, uint64_t count);
template <typename Format>
class HalfCast {
 public:
  static inline const OptionList options{};
  explicit HalfCast(const Options&) {}

  void plan(const PlanCall&, const Item& item, CompressorNeed& need) {
    need.round(PENSTOCK_COMBINE_SUM)
        .section(PENSTOCK_ROLE_VALUES, Format::kDtype, item.numel(), true,
                 PENSTOCK_SPLIT_BY_ELEMENT);
    need.part_alignment = 1;
  }

  void encode(const Call& call, const Item& item, PayloadWriter& payload) {
    const std::span<float> work = item.work();
    const std::span<uint16_t> bits = payload.room<uint16_t>(0);
    if (item.keeps())
      take_out(work, bits, Format::share(call.step->world));
    else
      Format::narrow(work.data(), bits.data(), work.size());
    payload.kind(PENSTOCK_PAYLOAD_DENSE);
    payload.count(0, work.size());
  }

  void decode(const Call&, const Items& items, const PayloadReaders& payloads) {
    for (uint64_t i = 0; i < items.size(); ++i) {
      const PayloadReader payload = payloads.at(i, 0);
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

}  // namespace penstock::sdk

// Decoding of gathered payloads that hold something for every element. Not a plugin: each dense
// method whose payloads cannot be added on the way compiles it into itself.
#pragma once

#include <kernels/stream.hpp>
#include <penstock/compressor.hpp>

#include <algorithm>
#include <span>

namespace penstock::plugins {

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
void decode_gathered(const sdk::Call& call, const sdk::Items& items,
                     const sdk::PayloadReaders& payloads, const Check& check, const Add& add) {
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

}  // namespace penstock::plugins

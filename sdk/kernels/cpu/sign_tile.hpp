// Tiles of words, and the zeros in a tile, for the kernels that read planes of signs.
#pragma once

#include <kernels/sign.hpp>

#include <algorithm>
#include <cstring>

namespace penstock::kernels {

constexpr uint64_t kTileWords = 32;  // 2048 elements: the data of a tile stays in the first cache

struct Tile {
  uint64_t first_word;
  uint64_t words;
};

// Whether the sender may have a zero in this tile; true for every sender with a plane of zeros.
inline bool may_have_zero(const Signs& sender, const Tile& tile) {
  if (sender.nonzero != nullptr) return true;
  if (sender.n_zeros == 0) return false;
  const uint64_t begin = tile.first_word * 64, end = begin + tile.words * 64;
  const uint32_t* const last = sender.zeros + sender.n_zeros;
  const uint32_t* const at = std::lower_bound(sender.zeros, last, begin);
  return at != last && *at < end;
}

// Writes the plane of nonzero elements of one sender in this tile. Returns false and writes nothing
// if the sender has no zero here.
[[gnu::always_inline]] inline bool nonzero_of(const Signs& sender, const Tile& tile,
                                              uint64_t* nonzero) {
  if (sender.nonzero != nullptr) {
    std::memcpy(nonzero, sender.nonzero + tile.first_word, tile.words * sizeof(uint64_t));
    return true;
  }
  if (sender.n_zeros == 0) return false;
  const uint64_t begin = tile.first_word * 64, end = begin + tile.words * 64;
  const uint32_t* const last = sender.zeros + sender.n_zeros;
  const uint32_t* at = std::lower_bound(sender.zeros, last, begin);
  if (at == last || *at >= end) return false;
  std::memset(nonzero, 0xff, tile.words * sizeof(uint64_t));
  for (; at != last && *at < end; ++at) nonzero[(*at - begin) / 64] &= ~(uint64_t{1} << (*at % 64));
  return true;
}

}  // namespace penstock::kernels

// The k-th largest of many 31-bit keys in three passes of histograms. Internal to the kernels.
#pragma once

#include <kernels/element/keys.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

namespace penstock::kernels {

// Keys above `threshold` are chosen, and the first `ties` keys that are equal to it.
struct ExactThreshold {
  uint32_t threshold;
  uint64_t ties;
};

inline constexpr int kRadixBits = 11;  // bits of a key in the first pass; later passes:
inline constexpr int kFineBits = 10;
inline constexpr uint64_t kRadixBins = uint64_t{1} << kRadixBits;
inline constexpr uint64_t kRadixTables = 4;
// Bytes of the histograms of select_exactly.
inline constexpr uint64_t kRadixBytes = kRadixBins * kRadixTables * sizeof(uint32_t);

// Returns the bin that holds the k-th largest key, and subtracts from k the keys in the bins above
// it.
inline uint32_t find_bin(const uint32_t* histogram, uint64_t n_bins, uint64_t& k) {
  uint64_t bin = n_bins - 1;
  while (histogram[bin] < k) k -= histogram[bin--];
  return static_cast<uint32_t>(bin);
}

// `visit(body)` calls body(position, key) for each of the n < 2^32 keys, positions ascending from
// 0; 1 <= k <= n; all keys lie in [lowest, highest]. The narrower this range, the fewer keys share
// the bin of the k-th largest key, and the search for the rest of its bits is then almost free.
// Magnitudes have few different exponents, so the first histogram of many keys has four tables:
// neighbouring keys then do not wait for each other's counter.
template <typename Visit>
ExactThreshold select_exactly(Visit&& visit, uint64_t n, uint64_t k, uint32_t* histogram,
                              uint32_t lowest = 0, uint32_t highest = kInfinityKey) {
  const uint64_t tables = n < 4 * kRadixBins ? 1 : kRadixTables;
  const int span = std::bit_width(highest - lowest);
  const int coarse = std::max(span - kRadixBits, 0), fine = std::max(coarse - kFineBits, 0);
  std::memset(histogram, 0, tables * kRadixBins * sizeof(uint32_t));
  visit([&](uint64_t position, uint32_t key) {
    ++histogram[(position & (tables - 1)) * kRadixBins + ((key - lowest) >> coarse)];
  });
  for (uint64_t table = 1; table < tables; ++table)
    for (uint64_t bin = 0; bin < kRadixBins; ++bin)
      histogram[bin] += histogram[table * kRadixBins + bin];
  uint32_t found = find_bin(histogram, kRadixBins, k);
  for (int known = coarse, wanted = fine; known > 0; known = wanted, wanted = 0) {
    const uint32_t bins = 1u << (known - wanted);
    std::memset(histogram, 0, bins * sizeof(uint32_t));
    visit([&](uint64_t, uint32_t key) {
      if ((key - lowest) >> known == found) ++histogram[((key - lowest) >> wanted) & (bins - 1)];
    });
    found = found << (known - wanted) | find_bin(histogram, bins, k);
  }
  return {lowest + found, k};
}

}  // namespace penstock::kernels

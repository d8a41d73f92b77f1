// The k-th largest of many 31-bit keys in three passes of histograms. Internal to the kernels.
#pragma once

#include <cstdint>
#include <cstring>

namespace penstock::kernels {

// Entries above `threshold` are chosen, and the first `ties` of those equal to it.
struct ExactThreshold {
  uint32_t threshold;
  uint64_t ties;
};

inline constexpr uint64_t kRadixBins = 2048;
inline constexpr uint64_t kRadixTables = 4;
// Bytes of histograms that select_exactly works in.
inline constexpr uint64_t kRadixBytes = kRadixBins * kRadixTables * sizeof(uint32_t);

// Takes off `bin` what lies above the k-th largest; returns the bin that holds it.
inline uint32_t find_bin(const uint32_t* histogram, uint64_t n_bins, uint64_t& k) {
  uint64_t bin = n_bins - 1;
  while (histogram[bin] < k) k -= histogram[bin--];
  return static_cast<uint32_t>(bin);
}

// `visit(body)` calls body(position, key) for each of the n < 2^32 keys, positions ascending from
// 0; 1 <= k <= n. Magnitudes crowd into few exponents, so the first histogram of many keys is kept
// in four tables: neighbouring keys do not wait for each other's counter.
template <typename Visit>
ExactThreshold select_exactly(Visit&& visit, uint64_t n, uint64_t k, uint32_t* histogram) {
  const uint64_t tables = n < 4 * kRadixBins ? 1 : kRadixTables;
  std::memset(histogram, 0, tables * kRadixBins * sizeof(uint32_t));
  visit([&](uint64_t position, uint32_t key) {
    ++histogram[(position & (tables - 1)) * kRadixBins + (key >> 20)];
  });
  for (uint64_t table = 1; table < tables; ++table)
    for (uint64_t bin = 0; bin < kRadixBins; ++bin)
      histogram[bin] += histogram[table * kRadixBins + bin];
  const uint32_t high = find_bin(histogram, kRadixBins, k);

  std::memset(histogram, 0, 1024 * sizeof(uint32_t));
  visit([&](uint64_t, uint32_t key) {
    if ((key >> 20) == high) ++histogram[(key >> 10) & 1023];
  });
  const uint32_t middle = (high << 10) | find_bin(histogram, 1024, k);

  std::memset(histogram, 0, 1024 * sizeof(uint32_t));
  visit([&](uint64_t, uint32_t key) {
    if ((key >> 10) == middle) ++histogram[key & 1023];
  });
  const uint32_t low = find_bin(histogram, 1024, k);
  return {(middle << 10) | low, k};
}

}  // namespace penstock::kernels

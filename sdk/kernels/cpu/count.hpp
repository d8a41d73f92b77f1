// Counts the entries that reach several thresholds, tile by tile. Internal to the kernels.
#pragma once

#include <kernels/code_path.hpp>

#include <cstdint>
#include <span>

namespace penstock::kernels {

// The keys of up to 16 thresholds; unused places hold a key that no entry reaches.
struct ThresholdKeys {
  static constexpr uint64_t kMost = 16;
  alignas(64) int32_t keys[kMost];
  int32_t lowest;
  uint64_t n;
};

// Adds to counts[j] the number of entries of x[n], n < 2^31, whose key reaches keys[j].
using CountTile = void (*)(const float* x, uint64_t n, const ThresholdKeys& thresholds,
                           int32_t* counts);
CountTile count_on(CodePath path) noexcept;

// Counts for any number of thresholds: 16 at a time while a tile is in the cache.
class Counter {
 public:
  Counter(std::span<const float> thresholds, uint64_t* counts, CodePath path);
  void count(const float* x, uint64_t n);  // n at most 2^20

 private:
  std::span<const float> thresholds_;
  uint64_t* counts_;
  CountTile tile_;
  ThresholdKeys first_{};  // keys of the first 16; there are rarely more
};

}  // namespace penstock::kernels

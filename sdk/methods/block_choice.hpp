// The largest elements of one block after another.
#pragma once

#include <methods/agreed.hpp>
#include <methods/blocks.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

namespace penstock::sdk {

// Chooses by magnitude, between equal magnitudes the lower position. Neighbouring blocks are alike:
// nearly always a little less than the smallest choice from the block before is passed by a few
// more elements than are wanted, and one compaction and a search among those few suffice. The
// choice does not depend on that guess. All functions are [step].
class BlockChoice {
 public:
  static uint64_t scratch_bytes() {
    return whole_lines(sizeof(Room)) + kernels::select_scratch_bytes(kBlockSize, kBlockSize);
  }
  // `offset`, a multiple of 64: the first byte of the call's scratch that is free.
  BlockChoice(const Call& call, uint64_t offset, kernels::CodePath path)
      : room_(call.scratch<Room>(1, offset)[0]),
        scratch_(select_scratch(call, offset + whole_lines(sizeof(Room)))),
        path_(path) {}

  // Writes the `k` >= 1 largest of x[n], n <= 4096: positions ascending, and values.
  void largest(const float* x, uint64_t n, uint64_t k, uint16_t* positions, float* values) {
    if (k >= n) {
      for (uint64_t i = 0; i < n; ++i) positions[i] = static_cast<uint16_t>(i);
      return void(std::copy_n(x, n, values));
    }
    uint64_t count = 0;
    if (level_ != 0)
      count = kernels::select_above(x, n, level_ * margin_, n, room_.indices, room_.values,
                                    scratch_, path_);
    const bool was_right = count >= k;
    if (!was_right || count > kMostSearched * k) {
      kernels::select_largest(x, n, k, room_.indices, room_.values, scratch_, path_);
      count = k;
    }
    const uint64_t least = count == k ? 0 : least_key(count, k);
    uint32_t smallest = UINT32_MAX;
    for (uint64_t j = 0, chosen = 0; chosen < k;
         ++j) {  // without branches, which none could foresee
      const bool is_chosen = key(j) >= least;
      positions[chosen] = static_cast<uint16_t>(room_.indices[j]);
      values[chosen] = room_.values[j];
      smallest = is_chosen ? std::min(smallest, magnitude(j)) : smallest;
      chosen += is_chosen;
    }
    learn(std::bit_cast<float>(smallest), was_right);
  }

 private:
  // With more elements than that per choice, a selection from the whole block is faster.
  static constexpr uint64_t kMostSearched = 8;
  static constexpr uint32_t kBins = 256;

  struct Room {
    uint32_t indices[kBlockSize];
    float values[kBlockSize];
    uint64_t keys[kBlockSize];
    uint16_t bins[kBins];
  };

  uint32_t magnitude(uint64_t j) const {
    return std::bit_cast<uint32_t>(room_.values[j]) & 0x7fffffffu;
  }
  // Larger for a larger magnitude, and between equal ones for the lower position.
  uint64_t key(uint64_t j) const {
    return uint64_t{magnitude(j)} << 32 | (UINT32_MAX - room_.indices[j]);
  }
  // The key that `k` of the `count` collected elements reach. Their magnitudes, counted in steps of
  // less than a hundredth from the smallest one on, leave a few that have to be sorted.
  uint64_t least_key(uint64_t count, uint64_t k) {
    uint32_t lowest = UINT32_MAX;
    for (uint64_t j = 0; j < count; ++j) lowest = std::min(lowest, magnitude(j));
    const auto bin_of = [&](uint64_t j) {
      return std::min((magnitude(j) - lowest) >> 16, kBins - 1);
    };
    std::fill_n(room_.bins, kBins, uint16_t{0});
    for (uint64_t j = 0; j < count; ++j) ++room_.bins[bin_of(j)];
    uint32_t bin = kBins - 1;
    for (; room_.bins[bin] < k; --bin) k -= room_.bins[bin];
    uint64_t n = 0;
    for (uint64_t j = 0; j < count; ++j) {
      room_.keys[n] = key(j);
      n += bin_of(j) == bin;
    }
    std::nth_element(room_.keys, room_.keys + k - 1, room_.keys + n, std::greater<>());
    return room_.keys[k - 1];
  }
  // Blocks of one gradient scatter by a few hundredths; after a leap the newest block counts alone.
  // The margin settles where about one block of a hundred is searched twice.
  void learn(float smallest, bool was_right) {
    const bool is_near = smallest < 1.25f * level_ && level_ < 1.25f * smallest;
    if (level_ != 0) margin_ = std::clamp(margin_ + (was_right ? 1e-4f : -1e-2f), 0.6f, 0.98f);
    level_ = is_near ? 0.75f * level_ + 0.25f * smallest : smallest;
    if (!std::isfinite(level_)) level_ = 0;
  }

  Room& room_;
  kernels::SelectScratch scratch_;
  kernels::CodePath path_;
  float level_ = 0;      // of the smallest choices from the blocks before; 0: unknown
  float margin_ = 0.9f;  // what passes this share of the level is collected
};

}  // namespace penstock::sdk

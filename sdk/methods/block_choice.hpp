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
// most of the time a little less than the smallest choice from the block before is passed by a few
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
    for (float guess : {guess_, guess_ / 2}) {
      if (guess == 0 || count >= k) break;
      count = kernels::select_above(x, n, guess, n, room_.indices, room_.values, scratch_, path_);
    }
    if (count < k || count > kMostSearched * k) {
      kernels::select_largest(x, n, k, room_.indices, room_.values, scratch_, path_);
      count = k;
    }
    const uint64_t least = count == k ? 0 : least_key(count, k);
    uint32_t smallest = UINT32_MAX;
    for (uint64_t j = 0, chosen = 0; chosen < k; ++j) {
      if (key(j) < least) continue;
      positions[chosen] = static_cast<uint16_t>(room_.indices[j]);
      values[chosen++] = room_.values[j];
      smallest = std::min(smallest, magnitude(j));
    }
    guess_ = 0.9f * std::bit_cast<float>(smallest);
    if (!std::isfinite(guess_)) guess_ = 0;
  }

 private:
  // With more elements than that per choice, a selection from the whole block is faster.
  static constexpr uint64_t kMostSearched = 8;

  struct Room {
    uint32_t indices[kBlockSize];
    float values[kBlockSize];
    uint64_t keys[kBlockSize];
  };

  uint32_t magnitude(uint64_t j) const {
    return std::bit_cast<uint32_t>(room_.values[j]) & 0x7fffffffu;
  }
  // Larger for a larger magnitude, and between equal ones for the lower position.
  uint64_t key(uint64_t j) const {
    return uint64_t{magnitude(j)} << 32 | (UINT32_MAX - room_.indices[j]);
  }
  // The key that `k` of the `count` collected elements reach.
  uint64_t least_key(uint64_t count, uint64_t k) {
    for (uint64_t j = 0; j < count; ++j) room_.keys[j] = key(j);
    std::nth_element(room_.keys, room_.keys + k - 1, room_.keys + count, std::greater<>());
    return room_.keys[k - 1];
  }

  Room& room_;
  kernels::SelectScratch scratch_;
  kernels::CodePath path_;
  float guess_ = 0;
};

}  // namespace penstock::sdk

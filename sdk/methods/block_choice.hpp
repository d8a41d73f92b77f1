// The largest elements of one block after another.
#pragma once

#include <kernels/guessed_selection.hpp>
#include <methods/agreed.hpp>
#include <methods/blocks.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace penstock::sdk {

// Chooses by magnitude, between equal magnitudes the lower position. Neighbouring blocks are alike:
// nearly always a little less than the smallest choice from the block before is passed by a few
// more elements than are wanted, and a search among those few suffices. The choice does not depend
// on that guess. All functions are [step].
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

  // Writes the `k` >= 1 largest of n <= 4096 elements: positions ascending, and values.
  void largest(const BlockElements& x, uint64_t n, uint64_t k, uint16_t* positions, float* values) {
    if (k >= n) {
      for (uint64_t i = 0; i < n; ++i) positions[i] = static_cast<uint16_t>(i);
      return x.copy(n, values);
    }
    const uint64_t most = std::min(kBlockSize, kMostSearched * k);
    kernels::GuessedSelection found;
    if (level_ != 0)
      found = kernels::select_by_guess(x.first, n, x.stride, k, level_ * margin_, most, scratch_,
                                       path_);
    const bool was_right = found.indices != nullptr;
    if (was_right) {
      std::memcpy(values, found.bits, k * sizeof(float));
    } else {
      x.copy(n, room_.elements);
      kernels::select_largest(room_.elements, n, k, room_.indices, values, scratch_, path_);
      found.indices = room_.indices;
      found.reached = std::fabs(values[0]);
      for (uint64_t j = 1; j < k; ++j)
        found.reached = std::min(found.reached, std::fabs(values[j]));
    }
    for (uint64_t j = 0; j < k; ++j) positions[j] = static_cast<uint16_t>(found.indices[j]);
    learn(found.reached, was_right);
  }

 private:
  // With more elements than that per choice, a selection from the whole block is faster.
  static constexpr uint64_t kMostSearched = 8;

  struct Room {
    float elements[kBlockSize];
    uint32_t indices[kBlockSize];
  };
  static_assert(kernels::guessed_scratch_bytes(kBlockSize) <=
                kernels::kSelectFixedBytes + 2 * kBlockSize * sizeof(uint32_t));

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

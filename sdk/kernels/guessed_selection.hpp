// The k largest entries of one block after another, when the smallest choice is nearly known from
// the block before.
#pragma once

#include <kernels/select.hpp>

namespace penstock::kernels {

// What was chosen: positions ascending, and the bits of the values. It points into the scratch.
struct GuessedSelection {
  const uint32_t* indices = nullptr;  // null: the guess did not help
  const uint32_t* bits = nullptr;
  float reached = 0;  // every choice reaches it, and at most k entries exceed it
};

constexpr uint64_t guessed_scratch_bytes(uint64_t most) noexcept {
  return (most + 64) * 2 * sizeof(uint32_t);
}

// Chooses what select_largest chooses of n >= k >= 1 entries, from those whose magnitude reaches
// `guess`. Fails without an effect if fewer than k or more than `most` reach it. The entries lie in
// runs of 64 floats, `stride` floats from one run to the next; with another stride than 64, n is a
// multiple of 64. `scratch` has at least guessed_scratch_bytes(most). [any]
GuessedSelection select_by_guess(const float* x, uint64_t n, uint64_t stride, uint64_t k,
                                 float guess, uint64_t most, SelectScratch scratch,
                                 CodePath path) noexcept;

}  // namespace penstock::kernels

// How a selection lies in its workspace, and what it does once it knows how many entries its bound
// let through. Plain functions, for host and device. Internal to the CUDA kernels.
#pragma once

#include <kernels/cuda/queue.hpp>
#include <kernels/cuda/select.hpp>
#include <kernels/cuda/tuning.hpp>
#include <kernels/cuda/workspace.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace penstock::kernels::cuda {

// The 31 bits of a magnitude are three digits: 11, 10 and 10 bits.
inline constexpr uint32_t kDigits = 3;
inline constexpr uint32_t kDigitBins = 2048;

// Zero before each selection, and so are the histograms behind it.
struct SelectState {
  uint32_t bound;             // key that candidates reach
  uint32_t found;             // entries that reach it
  uint32_t zeros_fill;        // 1: where fewer than k do, zeros go with them
  uint32_t prefix[kDigits];   // of the k-th largest key: the first digit, first two, all
  uint32_t left[kDigits];     // how many are wanted of the keys that begin so
  uint32_t arrived[kDigits];  // blocks that have added their histogram
  uint32_t histogram[kDigits][kDigitBins];
};

// The candidates of a tile of the input, in order; tiles lie in the order in which they came.
struct TileCandidates {
  uint32_t begin;
  uint32_t count;
};

// One selection, as its kernels read it: what is asked for, and its part of the workspace.
struct Selection {
  const float* x;
  uint64_t stride;  // between entries
  Fold fold;        // of form NONE: x is as it is
  uint32_t* indices;
  float* values;           // null: nobody asks
  float* work;             // null: nothing is taken out
  uint64_t* count;         // null: the k largest go; else at most k, all above the threshold
  const float* threshold;  // null: known_threshold
  Reached* reached;        // null: nobody asks
  SelectState* state;
  TileCandidates* tiles;  // [n_tiles]
  uint64_t* chosen;       // [n_tiles] upper half: keys above the threshold; lower: equal to it
  uint32_t* candidates;   // [capacity] their positions
  uint32_t* bits;         // [capacity] and the bits of their values, none of which is a NaN
  uint32_t n;
  uint32_t k;
  uint32_t least;  // where fewer reach the bound than this, the `instead` largest go
  uint32_t instead;
  uint32_t capacity;  // candidates that there is room for; 0: all entries compete
  uint32_t n_tiles;
  uint32_t sample_rank;  // the bound is this largest of a sample; 0: it is known
  float known_threshold;
  bool zeros_reach_zero;  // where the threshold is zero, zeros fill up to k
  bool zeros_fill_instead;
};

// The selections of a call. A kernel's blocks, or warps, are numbered through: those of the first
// selection, then those of the second.
struct Selections {
  Selection* all;                // [n]
  uint32_t* first_tiles;         // [n]
  uint32_t* first_digit_blocks;  // [n]
  uint32_t n;
};

// What the first kernel brings into the workspace: by value, so that it travels with the launch.
inline constexpr uint32_t kMostBegun = 19;
struct BegunSelections {
  Selection all[kMostBegun];
  uint32_t first_tiles[kMostBegun];
  uint32_t first_digit_blocks[kMostBegun];
  uint32_t first;  // where they go
};
static_assert(sizeof(BegunSelections) + sizeof(Selections) <= 4096, "a launch takes no more");

// Blocks that look for a digit of the k-th largest of n keys. As many as the candidates that there
// is room for keep busy: only where these were too many or too few do all entries compete.
constexpr uint32_t digit_blocks(uint64_t n, uint64_t capacity) {
  constexpr uint64_t kKeys = uint64_t{2} * kDigitLoads * kDigitThreads;
  const uint64_t of_all = std::min<uint64_t>(kDigitBlocks, pieces(n, kKeys));
  if (capacity == 0) return static_cast<uint32_t>(of_all);
  const uint64_t of_candidates = std::max<uint64_t>(
      {kFewDigitBlocks, pieces(capacity, kKeys), pieces(n, kKeys * kTurnsOfAll)});
  return static_cast<uint32_t>(std::min(of_all, of_candidates));
}

// Tiles that a block counts and writes, of so many in all: one where few blocks are busy.
constexpr uint32_t tiles_of_block(uint32_t n_tiles) {
  return n_tiles <= kFewTiles ? 1 : kTileWarps;
}

// Where the chosen entries come from. Those above `threshold` are chosen, and the first `ties` of
// those equal to it; both are meaningful where `known`, else they are searched for.
struct Decision {
  uint32_t k;
  bool from_all;  // among all entries of the input, not among the candidates
  bool known;
  uint32_t threshold;
  uint32_t ties;
};

// `found` entries reach the key `bound` >= 1. Every zero is below every bound, so where the bound
// is 1 all entries that are not zero are candidates.
constexpr Decision decide(const Selection& s, uint32_t found, uint32_t bound, bool up_to_k) {
  uint32_t k = s.k;
  if (found < s.least) return {s.instead, true, false, 0, 0};
  if (found > s.capacity) return {k, true, false, 0, 0};
  if (up_to_k && found < k) k = found;
  if (found == k) return {k, false, true, 0, 0};
  if (found > k) return {k, false, false, 0, 0};
  if (bound > 1) return {k, true, false, 0, 0};
  return {k, true, true, 0, k - found};
}

// Samples that lie above the wanted threshold: four standard deviations more than expected.
inline uint64_t sample_rank(uint64_t n, uint64_t k) {
  const double expected =
      static_cast<double>(kSamples) * static_cast<double>(k) / static_cast<double>(n);
  return static_cast<uint64_t>(std::ceil(expected + 4 * std::sqrt(expected) + 4));
}

// Three times the slack that the sample is expected to give. At densities of 0.1 % and more the
// bound then lets through more candidates than there is room for once in half a million selections;
// with twice the slack it did so once in 300. All entries of the input compete in that case.
inline uint64_t candidates_for(uint64_t n, uint64_t k) {
  if (n <= kAlwaysAll) return n;
  const double expected =
      static_cast<double>(sample_rank(n, k)) / kSamples * static_cast<double>(n);
  const double slack = std::max(0.0, expected - static_cast<double>(k)) + 4096;
  return std::min(n, static_cast<uint64_t>(expected + 2 * slack));
}

// Hands out parts of a workspace, each aligned to 64 bytes; over null it only counts.
class Parts {
 public:
  explicit Parts(void* data) : data_(static_cast<char*>(data)) {}
  template <typename T>
  T* take(uint64_t count) {
    T* part = data_ == nullptr ? nullptr : reinterpret_cast<T*>(data_ + bytes_);
    bytes_ += (count * sizeof(T) + 63) / 64 * 64;
    return part;
  }
  uint64_t bytes() const { return bytes_; }

 private:
  char* data_;
  uint64_t bytes_ = 0;
};

// The parts are rounded up one by one, so what the table of several selections takes is no more
// than what one table for each would.
inline Selections plan_table(Parts& parts, uint64_t n) {
  Selections table{};
  table.all = parts.take<Selection>(n);
  table.first_tiles = parts.take<uint32_t>(n);
  table.first_digit_blocks = parts.take<uint32_t>(n);
  table.n = static_cast<uint32_t>(n);
  return table;
}

// Fills in what follows from n and k, and takes the selection's parts.
inline void plan_selection(Parts& parts, uint64_t n, uint64_t k, Selection& plan) {
  plan.n = static_cast<uint32_t>(n);
  plan.k = static_cast<uint32_t>(std::min(n, k));
  plan.n_tiles = static_cast<uint32_t>(pieces(n, kCollectTile));
  if (n == 0) return;
  plan.capacity = static_cast<uint32_t>(candidates_for(n, plan.k));
  plan.state = parts.take<SelectState>(1);
  plan.tiles = parts.take<TileCandidates>(plan.n_tiles);
  plan.chosen = parts.take<uint64_t>(plan.n_tiles);
  plan.candidates = parts.take<uint32_t>(plan.capacity);
  plan.bits = parts.take<uint32_t>(plan.capacity);
}

}  // namespace penstock::kernels::cuda

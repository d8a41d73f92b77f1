// The layout of a selection in its workspace, and its decision once it knows how many entries
// reached its bound. Plain functions, for host and device. Internal to the CUDA kernels.
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

// The state of a selection, with its histograms; all zero before each selection.
struct SelectState {
  uint32_t bound;             // the key that candidates must reach
  uint32_t found;             // entries that reach the bound
  uint32_t zeros_fill;        // 1: if fewer than k reach it, zeros are chosen too
  uint32_t prefix[kDigits];   // first digit, first two, all digits of the k-th largest key
  uint32_t left[kDigits];     // how many keys with this prefix are wanted
  uint32_t arrived[kDigits];  // blocks that have added their histogram
  uint32_t histogram[kDigits][kDigitBins];
};

// The candidates of a tile of the input, in order. Tiles lie in the order in which their blocks
// reserved room.
struct TileCandidates {
  uint32_t begin;
  uint32_t count;
};

// One selection, as its kernels read it: the request, and its part of the workspace.
struct Selection {
  const float* x;
  uint32_t stride;        // between entries
  bool zeros_reach_zero;  // if the threshold is zero, zeros fill up to k
  bool zeros_fill_instead;
  Fold fold;  // form NONE: x is not compensated
  uint32_t* indices;
  float* values;           // null: not wanted
  float* work;             // null: no entry is zeroed
  uint64_t* count;         // null: choose the k largest; else at most k, at the threshold or above
  const float* threshold;  // null: known_threshold
  Reached* reached;        // null: not wanted
  SelectState* state;
  TileCandidates* tiles;  // [n_tiles]
  uint64_t* chosen;       // [n_tiles] upper half: number of keys above the threshold; lower: equal
  uint32_t* candidates;   // [capacity] their positions
  uint32_t* bits;         // [capacity] the bits of their values; never a NaN
  uint32_t n;
  uint32_t k;
  uint32_t least;  // if fewer reach the bound, choose the `instead` largest
  uint32_t instead;
  uint32_t capacity;  // room for candidates; 0: all entries compete
  uint32_t n_tiles;
  uint32_t sample_rank;  // rank of the bound in the sample; 0: the bound is known
  float known_threshold;
};

// The selections of a call. A kernel numbers its blocks, or warps, over all selections: first the
// blocks of the first selection, then the blocks of the second.
struct Selections {
  Selection* all;                // [n]
  uint32_t* first_tiles;         // [n]
  uint32_t* first_digit_blocks;  // [n]
  uint32_t n;
};

// The selections that the first kernel copies into the workspace; by value, so that they travel
// with the launch.
inline constexpr uint32_t kMostBegun = 19;
struct BegunSelections {
  Selection all[kMostBegun];
  uint32_t first_tiles[kMostBegun];
  uint32_t first_digit_blocks[kMostBegun];
  uint32_t first;  // the first index in the table
};
static_assert(sizeof(BegunSelections) + sizeof(Selections) <= 4096, "a launch takes no more");

// The number of blocks that search a digit of the k-th largest of n keys. The candidates that there
// is room for keep these blocks busy: all entries compete only if the candidates were too many or
// too few.
constexpr uint32_t digit_blocks(uint64_t n, uint64_t capacity) {
  constexpr uint64_t kKeys = uint64_t{2} * kDigitLoads * kDigitThreads;
  const uint64_t of_all = std::min<uint64_t>(kDigitBlocks, pieces(n, kKeys));
  if (capacity == 0) return static_cast<uint32_t>(of_all);
  const uint64_t of_candidates = std::max<uint64_t>(
      {kFewDigitBlocks, pieces(capacity, kKeys), pieces(n, kKeys * kTurnsOfAll)});
  return static_cast<uint32_t>(std::min(of_all, of_candidates));
}

// Tiles that a block counts and writes, out of n_tiles: one tile if there are few tiles.
constexpr uint32_t tiles_of_block(uint32_t n_tiles) {
  return n_tiles <= kFewTiles ? 1 : kTileWarps;
}

// The source of the chosen entries. Keys above `threshold` are chosen, and the first `ties` keys
// equal to it. Both are valid if `known`; otherwise the kernels search them.
struct Decision {
  uint32_t k;
  bool from_all;  // among all entries of the input, not among the candidates
  bool known;
  uint32_t threshold;
  uint32_t ties;
};

// `found` entries reach the key `bound` >= 1. Every zero is below every bound, so if the bound is 1
// all entries that are not zero are candidates.
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

// The number of samples above the wanted threshold: four standard deviations more than expected.
inline uint64_t sample_rank(uint64_t n, uint64_t k) {
  const double expected =
      static_cast<double>(kSamples) * static_cast<double>(k) / static_cast<double>(n);
  return static_cast<uint64_t>(std::ceil(expected + 4 * std::sqrt(expected) + 4));
}

// Room for candidates: three times the slack that the sample is expected to give. At densities of
// 0.1 % and more the candidates then exceed the room once in half a million selections; with twice
// the slack they did so once in 300. All entries of the input compete in that case.
inline uint64_t candidates_for(uint64_t n, uint64_t k) {
  if (n <= kAlwaysAll) return n;
  const double expected =
      static_cast<double>(sample_rank(n, k)) / kSamples * static_cast<double>(n);
  const double slack = std::max(0.0, expected - static_cast<double>(k)) + 4096;
  return std::min(n, static_cast<uint64_t>(expected + 2 * slack));
}

// Hands out parts of a workspace, each aligned to 64 bytes; without a workspace (null) it only
// counts the bytes.
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

// The table of the selections of a call. Each part is rounded up separately, so one table for
// several selections takes no more bytes than one table for each.
inline Selections plan_table(Parts& parts, uint64_t n) {
  Selections table{};
  table.all = parts.take<Selection>(n);
  table.first_tiles = parts.take<uint32_t>(n);
  table.first_digit_blocks = parts.take<uint32_t>(n);
  table.n = static_cast<uint32_t>(n);
  return table;
}

// Fills in the fields that follow from n and k, and takes the selection's parts.
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

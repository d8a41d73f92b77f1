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

// One selection, as every kernel of it gets it.
struct Selection {
  const float* x;
  uint64_t stride;  // between entries
  uint32_t n;
  uint32_t k;      // chosen, or at most so many where all above a threshold are wanted
  bool up_to_k;    // fewer where fewer reach the bound
  uint32_t least;  // where fewer reach the bound than this, the `instead` largest go, but zeros
  uint32_t instead;
  bool zeros_reach_zero;  // where the threshold is zero, zeros fill up to k
  uint32_t capacity;      // candidates that there is room for
  uint32_t n_tiles;
  SelectState* state;
  TileCandidates* tiles;  // [n_tiles]
  uint64_t* chosen;       // [n_tiles] upper half: keys above the threshold; lower: equal to it
  uint32_t* indices;      // [capacity] candidates
  uint32_t* keys;         // [capacity]
  Reached* reached;       // null: nobody asks
};

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

// Twice the slack that the sample is expected to give.
inline uint64_t candidates_for(uint64_t n, uint64_t k) {
  if (n <= kAlwaysAll) return n;
  const double expected =
      static_cast<double>(sample_rank(n, k)) / kSamples * static_cast<double>(n);
  const double slack = std::max(0.0, expected - static_cast<double>(k)) + 4096;
  return std::min(n, static_cast<uint64_t>(expected + slack));
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

struct PlannedSelection {
  Selection selection;
  uint64_t bytes;
};

inline PlannedSelection plan_selection(const float* x, uint64_t stride, uint64_t n, uint64_t k,
                                       bool up_to_k, void* workspace) {
  Parts parts(workspace);
  const uint64_t capacity = candidates_for(n, k);
  Selection plan{};
  plan.x = x;
  plan.stride = stride;
  plan.n = static_cast<uint32_t>(n);
  plan.k = static_cast<uint32_t>(k);
  plan.up_to_k = up_to_k;
  plan.capacity = static_cast<uint32_t>(capacity);
  plan.n_tiles = static_cast<uint32_t>(pieces(n, kCollectTile));
  plan.state = parts.take<SelectState>(1);
  plan.tiles = parts.take<TileCandidates>(plan.n_tiles);
  plan.chosen = parts.take<uint64_t>(plan.n_tiles);
  plan.indices = parts.take<uint32_t>(capacity);
  plan.keys = parts.take<uint32_t>(capacity);
  return {plan, parts.bytes()};
}

}  // namespace penstock::kernels::cuda

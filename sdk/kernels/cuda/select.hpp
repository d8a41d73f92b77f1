// Selection by magnitude on a device, with the results of ../select.hpp: the k largest entries, or
// all entries above a threshold, with ascending indices. A greater magnitude goes first, between
// equal magnitudes the lower index; a NaN counts as magnitude zero. Contract of all functions:
// workspace.hpp.
//
// One pass over the input collects the few entries, called candidates, that reach a bound found
// from a sample; all later kernels work on the candidates. If the sample misleads (ties, mostly
// zeros), these kernels read the whole input instead, five times in all. The device itself decides
// this.
#pragma once

#include <kernels/cuda/workspace.hpp>
#include <kernels/fold.hpp>

#include <cstdint>
#include <span>

namespace penstock::kernels::cuda {

// Bytes of workspace to select at most k of n < 2^32 entries. Several selections at once need the
// sum of their bytes.
uint64_t select_workspace_bytes(uint64_t n, uint64_t k) noexcept;

// Whether zero entries reach a threshold of zero, or may be among the `instead` largest if too few
// entries reach a threshold.
enum class Zeros { kNeverReach, kReachZero, kFillInstead };
// The outcome of a threshold, in device memory.
struct Reached {
  uint32_t passed;    // entries that reached it, also if they were not chosen
  uint32_t smallest;  // bits of the smallest chosen magnitude; of a NaN if there is none
};

// The selection from one of several arrays that a call handles at once, each separately. All
// pointers are to device memory. The functions for one array, below, explain the fields.
struct SelectRequest {
  const float* x;
  uint64_t n;
  uint64_t k;  // entries to choose; if there is a count, the largest number of entries
  uint32_t* indices;
  float* values;
  float* work = nullptr;             // x, if chosen entries become zero there
  uint64_t* count = nullptr;         // null: the k largest; else entries at the threshold or above
  const float* threshold = nullptr;  // null: known_threshold
  float known_threshold = 0;
  Zeros zeros = Zeros::kNeverReach;
  uint64_t least = 0;  // if fewer reach the threshold, choose the `instead` largest
  uint64_t instead = 0;
  Reached* reached = nullptr;
  Fold fold{};  // its work is x; form NONE: x is not compensated
};

// Runs all requests, in seven launches and one more for every 20 requests. The arrays may have any
// sizes; they must not overlap.
[[nodiscard]] int32_t select(std::span<const SelectRequest> requests, Workspace workspace,
                             void* stream) noexcept;

// Writes the k <= n < 2^32 entries of largest magnitude of x[n]: indices[k] ascending, values[k]
// unchanged; `values` may be null. If there is a `fold`, its work must be x; this pass then
// compensates the array first, with the bits of compensate (fold.hpp). grad, work and momentum are
// device memory.
[[nodiscard]] int32_t select_largest(const float* x, uint64_t n, uint64_t k, uint32_t* indices,
                                     float* values, Workspace workspace, void* stream,
                                     const Fold* fold = nullptr) noexcept;

// Like select_largest on x = work, and zeroes the chosen entries in work.
[[nodiscard]] int32_t take_largest(float* work, uint64_t n, uint64_t k, uint32_t* indices,
                                   float* values, Workspace workspace, void* stream,
                                   const Fold* fold = nullptr) noexcept;

// Selects the entries with |x| >= *threshold; if more than `capacity` pass, the `capacity` largest.
// Zero entries pass only if `zeros` allows it, and no entry passes a NaN. *count receives the
// number of written entries; indices[capacity] and values[capacity] keep their content behind them.
// `threshold` and `count` are device memory. The workspace must be planned for (n, capacity).
[[nodiscard]] int32_t select_above(const float* x, uint64_t n, const float* threshold,
                                   uint64_t capacity, uint32_t* indices, float* values,
                                   uint64_t* count, Workspace workspace, void* stream,
                                   const Fold* fold = nullptr,
                                   Zeros zeros = Zeros::kNeverReach) noexcept;

// Like select_above on x = work, and zeroes the chosen entries in work; entries beyond `capacity`
// stay there.
[[nodiscard]] int32_t take_above(float* work, uint64_t n, const float* threshold, uint64_t capacity,
                                 uint32_t* indices, float* values, uint64_t* count,
                                 Workspace workspace, void* stream, const Fold* fold = nullptr,
                                 Zeros zeros = Zeros::kNeverReach) noexcept;

// The wanted number of entries and its accepted bounds: 1 <= least, 1 <= target <= most, target <=
// n.
struct Band {
  uint64_t target;
  uint64_t least;
  uint64_t most;
};

// Like select_above or, if `taken`, take_above, with room for band.most entries. But if fewer than
// band.least entries reach the threshold, the band.target largest are chosen instead; only then,
// and only with kFillInstead, zero entries may be chosen. *reached is written. n must be at least
// 1. The workspace must be planned for (n, band.most).
[[nodiscard]] int32_t select_near(float* work, uint64_t n, const float* threshold, const Band& band,
                                  bool taken, uint32_t* indices, float* values, uint64_t* count,
                                  Reached* reached, Workspace workspace, void* stream,
                                  Zeros zeros = Zeros::kNeverReach) noexcept;

// *magnitude = the k-th largest magnitude among x[0], x[stride], ..., x[(n - 1) stride], 1 <= k <=
// n < 2^32. The workspace must be planned for (n, k).
[[nodiscard]] int32_t kth_magnitude(const float* x, uint64_t n, uint64_t stride, uint64_t k,
                                    float* magnitude, Workspace workspace, void* stream) noexcept;

// work <- form(work, grad) over n elements, with the bits of compensate of ../fold.hpp; all arrays
// are device memory.
[[nodiscard]] int32_t compensate(const Fold& fold, uint64_t n, void* stream) noexcept;

}  // namespace penstock::kernels::cuda

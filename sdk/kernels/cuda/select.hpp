// Selection by magnitude on a device, with the results of ../select.hpp: the k largest entries, or
// all above a threshold, with ascending indices; greater magnitude first, between equal magnitudes
// the lower index; a NaN counts as magnitude zero. Contract of all functions: workspace.hpp.
//
// One pass over the input collects the few entries that reach a bound found from a sample; all else
// works on these. Where the sample misleads (ties, mostly zeros), the same kernels go over the
// whole input, five times in all. The device decides that by itself.
#pragma once

#include <kernels/cuda/workspace.hpp>
#include <kernels/fold.hpp>

#include <cstdint>
#include <span>

namespace penstock::kernels::cuda {

// Bytes of workspace to select at most k of n < 2^32 entries; for several selections at once the
// sum over them.
uint64_t select_workspace_bytes(uint64_t n, uint64_t k) noexcept;

// Whether zero entries reach a threshold of zero, or are among the `instead` largest where too few
// entries reach a threshold.
enum class Zeros { kNeverReach, kReachZero, kFillInstead };
// What came of a threshold, in device memory.
struct Reached {
  uint32_t passed;    // entries that reached it, whether or not they went
  uint32_t smallest;  // bits of the smallest magnitude that went; those of a NaN where none did
};

// One of several arrays that are selected from at once, each by itself. All pointers are to device
// memory. What each field does is said below, at the functions for one array.
struct SelectRequest {
  const float* x;
  uint64_t n;
  uint64_t k;  // how many go, or where there is a count, how many may
  uint32_t* indices;
  float* values;
  float* work = nullptr;             // x, where what goes is taken out of it
  uint64_t* count = nullptr;         // null: the k largest go; else those that reach the threshold
  const float* threshold = nullptr;  // null: it is known_threshold
  float known_threshold = 0;
  Zeros zeros = Zeros::kNeverReach;
  uint64_t least = 0;  // where fewer reach the threshold than this, the `instead` largest go
  uint64_t instead = 0;
  Reached* reached = nullptr;
  Fold fold{};  // whose work is x; of form NONE: x is as it is
};

// Does what is asked, in seven launches and one more for every 20 requests. The arrays may be of
// any sizes; they must not overlap.
[[nodiscard]] int32_t select(std::span<const SelectRequest> requests, Workspace workspace,
                             void* stream) noexcept;

// Writes the k <= n < 2^32 entries of largest magnitude of x[n]: indices[k] ascending, values[k] as
// they are; `values` may be null. With `fold`, whose work is x, the array is compensated first, in
// the same pass and with the same bits (fold.hpp); grad, work and momentum are device memory.
[[nodiscard]] int32_t select_largest(const float* x, uint64_t n, uint64_t k, uint32_t* indices,
                                     float* values, Workspace workspace, void* stream,
                                     const Fold* fold = nullptr) noexcept;

// The same, and zeroes the chosen entries in work.
[[nodiscard]] int32_t take_largest(float* work, uint64_t n, uint64_t k, uint32_t* indices,
                                   float* values, Workspace workspace, void* stream,
                                   const Fold* fold = nullptr) noexcept;

// The entries with |x| >= *threshold; where more than `capacity` pass, the `capacity` largest. Zero
// entries never pass unless `zeros` says so, and nothing passes a NaN. *count is set to how many
// were written; what is behind them in indices[capacity] and values[capacity] stays. `threshold`
// and `count` are device memory. The workspace is that for (n, capacity).
[[nodiscard]] int32_t select_above(const float* x, uint64_t n, const float* threshold,
                                   uint64_t capacity, uint32_t* indices, float* values,
                                   uint64_t* count, Workspace workspace, void* stream,
                                   const Fold* fold = nullptr,
                                   Zeros zeros = Zeros::kNeverReach) noexcept;

// The same, and zeroes the chosen entries in work: what does not fit stays there.
[[nodiscard]] int32_t take_above(float* work, uint64_t n, const float* threshold, uint64_t capacity,
                                 uint32_t* indices, float* values, uint64_t* count,
                                 Workspace workspace, void* stream, const Fold* fold = nullptr,
                                 Zeros zeros = Zeros::kNeverReach) noexcept;

// How many entries should go, and may go instead: 1 <= least, 1 <= target <= most, target <= n.
struct Band {
  uint64_t target;
  uint64_t least;
  uint64_t most;
};

// As select_above or, where `taken`, take_above, with room for band.most entries; but where fewer
// than band.least reach the threshold, the band.target largest go instead. Zero entries go only
// then, and with kFillInstead. *reached is written. n is at least 1. The workspace is that for (n,
// band.most).
[[nodiscard]] int32_t select_near(float* work, uint64_t n, const float* threshold, const Band& band,
                                  bool taken, uint32_t* indices, float* values, uint64_t* count,
                                  Reached* reached, Workspace workspace, void* stream,
                                  Zeros zeros = Zeros::kNeverReach) noexcept;

// *magnitude = the k-th largest magnitude among x[0], x[stride], ..., x[(n - 1) stride],
// 1 <= k <= n < 2^32. The workspace is that for (n, k).
[[nodiscard]] int32_t kth_magnitude(const float* x, uint64_t n, uint64_t stride, uint64_t k,
                                    float* magnitude, Workspace workspace, void* stream) noexcept;

// work <- form(work, grad) over n elements, as compensate of ../fold.hpp; all arrays are device
// memory.
[[nodiscard]] int32_t compensate(const Fold& fold, uint64_t n, void* stream) noexcept;

}  // namespace penstock::kernels::cuda

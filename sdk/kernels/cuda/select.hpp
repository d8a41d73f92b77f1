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

namespace penstock::kernels::cuda {

// Bytes of workspace to select at most k of n < 2^32 entries.
uint64_t select_workspace_bytes(uint64_t n, uint64_t k) noexcept;

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
// entries never pass, and nothing passes a NaN. *count is set to how many were written; what is
// behind them in indices[capacity] and values[capacity] stays. `threshold` and `count` are device
// memory. The workspace is that for (n, capacity).
[[nodiscard]] int32_t select_above(const float* x, uint64_t n, const float* threshold,
                                   uint64_t capacity, uint32_t* indices, float* values,
                                   uint64_t* count, Workspace workspace, void* stream,
                                   const Fold* fold = nullptr) noexcept;

// The same, and zeroes the chosen entries in work: what does not fit stays there.
[[nodiscard]] int32_t take_above(float* work, uint64_t n, const float* threshold, uint64_t capacity,
                                 uint32_t* indices, float* values, uint64_t* count,
                                 Workspace workspace, void* stream,
                                 const Fold* fold = nullptr) noexcept;

// *magnitude = the k-th largest magnitude among x[0], x[stride], ..., x[(n - 1) stride],
// 1 <= k <= n < 2^32. The workspace is that for (n, k).
[[nodiscard]] int32_t kth_magnitude(const float* x, uint64_t n, uint64_t stride, uint64_t k,
                                    float* magnitude, Workspace workspace, void* stream) noexcept;

// work <- form(work, grad) over n elements, as compensate of ../fold.hpp; all arrays are device
// memory.
[[nodiscard]] int32_t compensate(const Fold& fold, uint64_t n, void* stream) noexcept;

}  // namespace penstock::kernels::cuda

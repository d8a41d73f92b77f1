// Sums and extremes over an array on a device: the counterparts of norm.hpp, statistics.hpp,
// exceedances.hpp, stochastic.hpp and sign.hpp. Contract of all functions: workspace.hpp.
//
// Counts and extremes are equal to the CPU's. Sums in double have their own order, because the
// CPU's order, one chain for each of 16 lanes, would keep only 16 threads busy: in tiles of 16384
// elements, element i belongs to chain i mod 256, and chains are joined by halving; the sums of
// tiles are added in this way too. The order depends only on the number of elements, so all devices
// and all runs give equal bits. Between CPU and device a sum of n terms differs by at most 2^-52 (n
// / 16 + n / 4194304 + 80) times the sum of the terms' magnitudes, mostly far less. So if ranks
// must agree on a decision and some ranks compute it on a CPU, the decision must not depend on such
// a sum.
#pragma once

#include <kernels/cuda/workspace.hpp>
#include <kernels/exceedances.hpp>
#include <kernels/range_levels.hpp>
#include <kernels/sign.hpp>
#include <kernels/statistics.hpp>
#include <kernels/stochastic.hpp>

#include <cstdint>

namespace penstock::kernels::cuda {

// Bytes of workspace that are enough for every function here over n elements in runs of `run`; a
// `run` of 0 means one run of all elements.
uint64_t reduce_workspace_bytes(uint64_t n, uint64_t run = 0) noexcept;

// *result = sum of x[i]^2, or of |x[i]|.
[[nodiscard]] int32_t sum_of_squares(const float* x, uint64_t n, double* result,
                                     Workspace workspace, void* stream) noexcept;
[[nodiscard]] int32_t sum_of_magnitudes(const float* x, uint64_t n, double* result,
                                        Workspace workspace, void* stream) noexcept;

// The sum of |x[i]| of each run; runs as at moments.
[[nodiscard]] int32_t sums_of_magnitudes(const float* x, uint64_t n, uint64_t run, double* results,
                                         Workspace workspace, void* stream) noexcept;

// results[r] = moments, or largest magnitude, of run r: elements r * run to (r + 1) * run - 1, or
// to the end. A `run` of 0 means one run of all elements; there is one result then, also for n = 0.
[[nodiscard]] int32_t moments(const float* values, uint64_t n, uint64_t run, Moments* results,
                              Workspace workspace, void* stream) noexcept;
[[nodiscard]] int32_t largest_magnitude(const float* values, uint64_t n, uint64_t run,
                                        float* results, Workspace workspace, void* stream) noexcept;

// results[r] = the least and the greatest element of run r. The sign of a zero is undefined, and so
// is the result of a run with elements that are not finite.
[[nodiscard]] int32_t value_ranges(const float* values, uint64_t n, uint64_t run,
                                   ValueRange* results, Workspace workspace, void* stream) noexcept;

// results[r] = the result of sums_by_sign (sign.hpp) over run r; the counts are exact.
[[nodiscard]] int32_t sums_by_sign(const float* values, uint64_t n, uint64_t run,
                                   SumsBySign* results, Workspace workspace, void* stream) noexcept;

// *result = the result of exceedances (exceedances.hpp) over *threshold, which is device memory;
// the count is exact.
[[nodiscard]] int32_t exceedances(const float* x, uint64_t n, const float* threshold,
                                  Exceedances* result, Workspace workspace, void* stream) noexcept;

// *result = the result of statistics (statistics.hpp), in one pass and without thresholds. With
// `logs`, sum_of_logs is right to about 1e-15 per entry; otherwise it is 0.
[[nodiscard]] int32_t statistics(const float* x, uint64_t n, bool logs, Statistics* result,
                                 Workspace workspace, void* stream) noexcept;

// counts[j] = number of entries with |x| >= thresholds[j], as in count_above of select.hpp; one
// pass for every 16 thresholds. Both arrays are device memory.
[[nodiscard]] int32_t count_above(const float* x, uint64_t n, const float* thresholds,
                                  uint64_t n_thresholds, uint64_t* counts, void* stream) noexcept;

}  // namespace penstock::kernels::cuda

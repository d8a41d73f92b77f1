// Sums and extremes over an array on a device: what norm.hpp, statistics.hpp, exceedances.hpp,
// stochastic.hpp and sign.hpp give on the CPU. Contract of all functions: workspace.hpp.
//
// Counts and extremes are those of the CPU. Sums in double have an order of their own, because the
// CPU's, one chain for each of 16 lanes, leaves a device with 16 threads: in tiles of 16384
// elements, element i belongs to chain i mod 256, chains are joined by halving; sums of tiles are
// added in the same way. The order depends on nothing but the number of elements, so all devices
// give the same bits, and two runs do. Against the CPU a sum of n terms differs by at most 2^-52 (n
// / 16 + n / 4194304 + 80) times the sum of the terms' magnitudes, mostly far less. So do not let
// such a sum decide what ranks agree on where some of them are CPUs.
#pragma once

#include <kernels/cuda/workspace.hpp>
#include <kernels/exceedances.hpp>
#include <kernels/range_levels.hpp>
#include <kernels/sign.hpp>
#include <kernels/statistics.hpp>
#include <kernels/stochastic.hpp>

#include <cstdint>

namespace penstock::kernels::cuda {

// Enough for every function here over n elements in runs of `run`; 0 for one run of all.
uint64_t reduce_workspace_bytes(uint64_t n, uint64_t run = 0) noexcept;

// *result = sum of x[i]^2, or of |x[i]|.
[[nodiscard]] int32_t sum_of_squares(const float* x, uint64_t n, double* result,
                                     Workspace workspace, void* stream) noexcept;
[[nodiscard]] int32_t sum_of_magnitudes(const float* x, uint64_t n, double* result,
                                        Workspace workspace, void* stream) noexcept;

// The latter of each run, as below.
[[nodiscard]] int32_t sums_of_magnitudes(const float* x, uint64_t n, uint64_t run, double* results,
                                         Workspace workspace, void* stream) noexcept;

// results[r] = moments, or largest magnitude, of run r: elements r * run to (r + 1) * run - 1, or
// to the end. A run of 0 is all elements; there is one result then, also for n = 0.
[[nodiscard]] int32_t moments(const float* values, uint64_t n, uint64_t run, Moments* results,
                              Workspace workspace, void* stream) noexcept;
[[nodiscard]] int32_t largest_magnitude(const float* values, uint64_t n, uint64_t run,
                                        float* results, Workspace workspace, void* stream) noexcept;

// results[r] = the least and the greatest of run r; which of two zeros is not defined. What is not
// finite gives what is not defined either.
[[nodiscard]] int32_t value_ranges(const float* values, uint64_t n, uint64_t run,
                                   ValueRange* results, Workspace workspace, void* stream) noexcept;

// results[r] as sums_by_sign of sign.hpp over run r, as above; the counts are exact.
[[nodiscard]] int32_t sums_by_sign(const float* values, uint64_t n, uint64_t run,
                                   SumsBySign* results, Workspace workspace, void* stream) noexcept;

// *result as exceedances of exceedances.hpp over *threshold, which is device memory; the count is
// exact.
[[nodiscard]] int32_t exceedances(const float* x, uint64_t n, const float* threshold,
                                  Exceedances* result, Workspace workspace, void* stream) noexcept;

// *result as statistics of statistics.hpp, in one pass, without thresholds; sum_of_logs is 0 unless
// `logs`, and right to about 1e-15 per entry then.
[[nodiscard]] int32_t statistics(const float* x, uint64_t n, bool logs, Statistics* result,
                                 Workspace workspace, void* stream) noexcept;

// counts[j] = number of entries with |x| >= thresholds[j], as count_above of select.hpp; one pass
// for each 16 of the `n_thresholds`. Both arrays are device memory.
[[nodiscard]] int32_t count_above(const float* x, uint64_t n, const float* thresholds,
                                  uint64_t n_thresholds, uint64_t* counts, void* stream) noexcept;

}  // namespace penstock::kernels::cuda

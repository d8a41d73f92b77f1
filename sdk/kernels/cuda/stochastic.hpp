// Stochastic rounding on a device, with the results of ../stochastic.hpp: the random words depend
// only on (key, element), so the bits are equal to the CPU's. Contract: workspace.hpp.
//
// Each run of `run` elements (a bucket of QSGD) may have its own grid; a run of 0 means one run of
// all elements. The numbers for a grid (reduce.hpp: moments, largest_magnitude) and the grid itself
// stay on the device. All functions take at most 2^32 elements per call.
#pragma once

#include <kernels/cuda/workspace.hpp>
#include <kernels/stochastic.hpp>

#include <cstdint>

namespace penstock::kernels::cuda {

// ---- Equal steps: QSGD ----

// steps[r] = grid_step(reach, levels), where the reach of run r is largest[r], or the root of
// moments[r].sum_of_squares.
[[nodiscard]] int32_t grid_steps_of_largest(const float* largest, uint64_t n_runs, uint32_t levels,
                                            float* steps, void* stream) noexcept;
[[nodiscard]] int32_t grid_steps_of_norm(const Moments* moments, uint64_t n_runs, uint32_t levels,
                                         float* steps, void* stream) noexcept;

// codes[i] = level of values[i] on the grid of its run, {steps[i / run], levels}, with the rule of
// round_to_levels of ../stochastic.hpp. Beyond 2^15 steps the level is undefined.
[[nodiscard]] int32_t round_to_levels(float* values, uint64_t numel, uint64_t run,
                                      const float* steps, uint32_t levels, RandomKey key,
                                      uint64_t first, bool take_out, uint8_t* codes,
                                      void* stream) noexcept;

// out[i] = (clear ? 0 : out[i]) + level * steps[i / run].
[[nodiscard]] int32_t add_levels(const uint8_t* codes, uint64_t numel, uint64_t run,
                                 const float* steps, bool clear, float* out, void* stream) noexcept;

// ---- All or nothing: TernGrad ----

// *scale = the largest magnitude of `numel` elements, but at most `clip` times the root of their
// mean square, unless clip is 0.
[[nodiscard]] int32_t clipped_scale(const Moments* moments, uint64_t numel, double clip,
                                    float* scale, void* stream) noexcept;

// Like round_to_signs of ../stochastic.hpp, with *scale in device memory; if it is 0, no element is
// chosen and values stay. Bits behind the last element are zero; planes are aligned to 8 bytes.
[[nodiscard]] int32_t round_to_signs(float* values, uint64_t numel, const float* scale,
                                     RandomKey key, uint64_t first, bool take_out,
                                     uint64_t* negative, uint64_t* nonzero, void* stream) noexcept;

// ---- Powers of two: natural compression ----

// bases[r] = power_base(largest[r]).
[[nodiscard]] int32_t power_bases(const float* largest, uint64_t n_runs, uint8_t* bases,
                                  void* stream) noexcept;

// Like round_to_powers and add_powers of ../stochastic.hpp, with the base of each run in device
// memory.
[[nodiscard]] int32_t round_to_powers(float* values, uint64_t numel, uint64_t run,
                                      const uint8_t* bases, RandomKey key, uint64_t first,
                                      bool take_out, uint8_t* codes, void* stream) noexcept;
[[nodiscard]] int32_t add_powers(const uint8_t* codes, uint64_t numel, uint64_t run,
                                 const uint8_t* bases, bool clear, float* out,
                                 void* stream) noexcept;

}  // namespace penstock::kernels::cuda

// Codes of few bits for elements, on a device: levels of a range (max-min), numbers of the dynamic
// tree (int8), a threshold (tbq). Codes of stochastic rounding are in stochastic.hpp. The bits are
// equal to the CPU's, because both use one arithmetic for an element (../range_levels.hpp,
// ../dynamic_tree.hpp, ../threshold_code.hpp). Contract: workspace.hpp.
//
// Elements come in runs of `run`, each with its own numbers; a run of 0 means one run of all
// elements. A code takes one byte (values.hpp packs codes). `take_out` subtracts from values[i]
// exactly the value of its code.
#pragma once

#include <kernels/cuda/workspace.hpp>
#include <kernels/random_uniform.hpp>
#include <kernels/range_levels.hpp>

#include <cstdint>

namespace penstock::kernels::cuda {

// ---- Levels of a range: max-min ----

// levels[r] = levels_of_range(ranges[r], n_steps); the ranges come from value_ranges (reduce.hpp).
[[nodiscard]] int32_t range_levels(const ValueRange* ranges, uint64_t n_runs, uint32_t n_steps,
                                   RangeLevels* levels, void* stream) noexcept;

// The choice of a level: with `by_chance`, the uniform random numbers of the elements from `first`
// on decide; otherwise it is the nearest level.
struct LevelChoice {
  bool by_chance;
  RandomKey key;
  uint64_t first;
};

// codes[i] = the level of values[i] in its run, at most n_steps; 0 if the step is 0. n_steps must
// be at most 255. At most 2^32 elements per call.
[[nodiscard]] int32_t round_to_range(float* values, uint64_t numel, uint64_t run,
                                     const RangeLevels* levels, uint32_t n_steps,
                                     const LevelChoice& choice, bool take_out, uint8_t* codes,
                                     void* stream) noexcept;

// ---- Numbers of the dynamic tree: int8 ----

// codes[i] = the code whose number is nearest to values[i] / scales[i / run], or the smaller
// magnitude if two are equally near. A scale is the largest magnitude of its run.
[[nodiscard]] int32_t nearest_in_tree(float* values, uint64_t numel, uint64_t run,
                                      const float* scales, bool take_out, uint8_t* codes,
                                      void* stream) noexcept;

// ---- A threshold: tbq ----

// codes[i] = threshold_code(values[i], threshold), and *sent = threshold, also if numel is 0.
[[nodiscard]] int32_t reach_threshold(float* values, uint64_t numel, float threshold, bool take_out,
                                      uint8_t* codes, float* sent, void* stream) noexcept;

}  // namespace penstock::kernels::cuda

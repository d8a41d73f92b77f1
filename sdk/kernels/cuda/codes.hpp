// Codes on a device that stand for elements as nearly as their few bits allow: levels of a range
// (max-min), numbers of the dynamic tree (int8), a threshold (tbq). Those of stochastic rounding
// are in stochastic.hpp. Bits are those of the arithmetic of one element that the CPU's methods use
// (../range_levels.hpp, ../dynamic_tree.hpp, ../threshold_code.hpp). Contract: workspace.hpp.
//
// Elements come in runs of `run`, each with numbers of its own; a run of 0 is all of them. Codes
// are a byte each (values.hpp packs them). `take_out` subtracts from values[i] exactly what its
// code stands for.
#pragma once

#include <kernels/cuda/workspace.hpp>
#include <kernels/random_uniform.hpp>
#include <kernels/range_levels.hpp>

#include <cstdint>

namespace penstock::kernels::cuda {

// ---- Levels of a range: max-min ----

// levels[r] = levels_of_range(ranges[r], n_steps); ranges are those of reduce.hpp.
[[nodiscard]] int32_t range_levels(const ValueRange* ranges, uint64_t n_runs, uint32_t n_steps,
                                   RangeLevels* levels, void* stream) noexcept;

// How a level is chosen: by the uniform numbers of the elements from `first` on, or the nearest.
struct LevelChoice {
  bool by_chance;
  RandomKey key;
  uint64_t first;
};

// codes[i] = the level of values[i] in its run, 0 where there is no step; at most n_steps, which is
// at most 255. At most 2^32 elements a call.
[[nodiscard]] int32_t round_to_range(float* values, uint64_t numel, uint64_t run,
                                     const RangeLevels* levels, uint32_t n_steps,
                                     const LevelChoice& choice, bool take_out, uint8_t* codes,
                                     void* stream) noexcept;

// ---- Numbers of the dynamic tree: int8 ----

// codes[i] = the code whose number is nearest to values[i] / scales[i / run], the smaller magnitude
// where two are equally near. A scale is the largest magnitude of its run.
[[nodiscard]] int32_t nearest_in_tree(float* values, uint64_t numel, uint64_t run,
                                      const float* scales, bool take_out, uint8_t* codes,
                                      void* stream) noexcept;

// ---- A threshold: tbq ----

// codes[i] = threshold_code(values[i], threshold), and *sent = threshold, also where numel is 0.
[[nodiscard]] int32_t reach_threshold(float* values, uint64_t numel, float threshold, bool take_out,
                                      uint8_t* codes, float* sent, void* stream) noexcept;

}  // namespace penstock::kernels::cuda

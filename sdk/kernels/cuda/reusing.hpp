// A threshold that serves several steps (../reused_threshold.hpp), on a device: the work of ADTopk
// around a selection over the whole gradient. The kernels have one thread each, so that no host
// waits for a count. Contract: workspace.hpp.
//
//   begin_reuse      the threshold to select with
//   select           (select.hpp): at least rules.least entries, else exactly the wanted number
//   replace_by_rows  only late in a training
//   end_reuse        updates the state for the next step
#pragma once

#include <kernels/cuda/select.hpp>

namespace penstock::kernels::cuda {

struct ReuseRules {
  uint64_t least;     // a threshold serves badly if fewer entries reach it
  float unit;         // the unit of x / the true gradient's unit
  float reuse_steps;  // steps that a threshold serves at first
  bool warms_up;      // every selection is exact
  bool is_late;       // gradients with a settled threshold are selected by rows
};

// Scratch of one step, in device memory.
struct Reusing {
  float threshold;  // NaN: the selection must be exact
  uint32_t by_rows;
  Reached reached;
};

// `state` is the gradient's state: the floats of a ReusedThreshold.
[[nodiscard]] int32_t begin_reuse(const ReuseRules& rules, const float* state, Reusing* s,
                                  void* stream) noexcept;
[[nodiscard]] int32_t end_reuse(const ReuseRules& rules, const Reusing* s, float* state,
                                void* stream) noexcept;

// If s->by_rows is set, copies the k positions of `rows` to `indices` and sets *count to k.
[[nodiscard]] int32_t replace_by_rows(const Reusing* s, const uint32_t* rows, uint64_t k,
                                      uint32_t* indices, uint64_t* count, void* stream) noexcept;

}  // namespace penstock::kernels::cuda

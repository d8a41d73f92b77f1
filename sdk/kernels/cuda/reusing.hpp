// A threshold that serves several steps (../reused_threshold.hpp), on a device: what ADTopk does
// around a selection over the whole gradient, as kernels of one thread, so that no host waits for a
// count. Contract: workspace.hpp.
//
//   begin_reuse      the threshold to select with
//   select           (select.hpp): of rules.least entries or more, else the wanted number, exactly
//   replace_by_rows  only late in a training
//   end_reuse        what is remembered for the next step
#pragma once

#include <kernels/cuda/select.hpp>

namespace penstock::kernels::cuda {

struct ReuseRules {
  uint64_t least;     // where fewer reach a threshold, it serves badly
  float unit;         // of x, over the true gradient's
  float reuse_steps;  // that a threshold serves at first
  bool warms_up;      // every selection is exact
  bool is_late;       // a gradient whose threshold has settled is chosen from by rows
};

// Scratch of one step, in device memory.
struct Reusing {
  float threshold;  // a NaN where the selection is to be exact
  uint32_t by_rows;
  Reached reached;
};

// `state` is what the gradient remembers: the floats of a ReusedThreshold.
[[nodiscard]] int32_t begin_reuse(const ReuseRules& rules, const float* state, Reusing* s,
                                  void* stream) noexcept;
[[nodiscard]] int32_t end_reuse(const ReuseRules& rules, const Reusing* s, float* state,
                                void* stream) noexcept;

// Where s->by_rows: indices become the k of `rows`, and *count becomes k.
[[nodiscard]] int32_t replace_by_rows(const Reusing* s, const uint32_t* rows, uint64_t k,
                                      uint32_t* indices, uint64_t* count, void* stream) noexcept;

}  // namespace penstock::kernels::cuda

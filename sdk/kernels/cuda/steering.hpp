// Thresholds that learn from their selections, on a device: the work of SteeredSelection
// (../../methods/steered_selection.hpp) and its methods between passes over a gradient. The kernels
// have one thread each, so that no host waits for a threshold. Contract: workspace.hpp.
//
//   estimate       a threshold, from statistics of x or from the gradient's state
//   select_near    (select.hpp)
//   learn          updates the state for the next step
//
// Thresholds follow from sums in floating point, whose order differs on a device (reduce.hpp), and
// thresholds of fitted laws also from CUDA's logarithms and powers. So they differ from the CPU's
// thresholds in the last bits.
#pragma once

#include <kernels/cuda/reduce.hpp>
#include <kernels/cuda/select.hpp>
#include <kernels/staged_fit.hpp>

namespace penstock::kernels::cuda {

// The way to estimate a threshold.
struct SteeringLaw {
  enum Kind : uint32_t {
    kNormal,     // `deviations` of a normal law around zero; learned: right / fitted threshold
    kBisection,  // by halving between mean and largest magnitude; kTrimmed: in five steps from
    kTrimmed,    // above. Both learn whether a position between the two is known, and which
    kStages,     // by ../staged_fit.hpp; learned: its numbers
  };
  Kind kind;
  double deviations = 0;
  StagedRule in_stages = {};
};

struct SteeringRules {
  Band band;
  float slack;         // thresholds are lowered by this factor before use
  float unit;          // the unit of x / the true gradient's unit
  float reuse_period;  // steps that an estimate serves
};

inline constexpr uint32_t kMostProbes = 15;  // counted in one pass: four halvings

// Scratch of one step, in device memory.
struct Steering {
  Statistics facts;
  StagedFit fit;      // for kStages
  double fitted;      // for kNormal: the threshold of the law alone
  double low, width;  // the remaining part of [0, 1] in a search
  uint64_t counts[kMostProbes];
  float probes[kMostProbes];
  float threshold;  // for the selection; NaN if there is none
  Reached reached;
  uint32_t arrived;  // blocks that have finished a look
};

// s->threshold for x[n], n at least 1. `state` is the gradient's state: the last threshold in true
// units, 0 if there is none; the steps since the last estimate; the numbers that the law has
// learned. The workspace must be planned with reduce_workspace_bytes.
[[nodiscard]] int32_t estimate(const SteeringLaw& law, const SteeringRules& rules, const float* x,
                               uint64_t n, const float* state, Steering* s, Workspace workspace,
                               void* stream) noexcept;

// Updates `state` after a selection of *count entries. `count` may be null only for n = 0: no
// entries.
[[nodiscard]] int32_t learn(const SteeringLaw& law, const SteeringRules& rules,
                            const uint64_t* count, const Steering* s, uint64_t n, float* state,
                            void* stream) noexcept;

}  // namespace penstock::kernels::cuda

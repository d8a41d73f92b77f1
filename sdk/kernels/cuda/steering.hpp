// Thresholds that learn from what they selected, on a device: what SteeredSelection
// (../../methods/steered_selection.hpp) and its methods do between passes over a gradient, as
// kernels of one thread, so that no host waits for a threshold. Contract: workspace.hpp.
//
//   estimate       a threshold, from facts about x or from what the gradient remembers
//   select_near    (select.hpp)
//   learn          what is remembered for the next step
//
// Thresholds rest on sums in floating point, whose order is a device's own (reduce.hpp), and those
// of fitted laws on logarithms and powers of CUDA's; so they differ from the CPU's in the last
// bits.
#pragma once

#include <kernels/cuda/reduce.hpp>
#include <kernels/cuda/select.hpp>
#include <kernels/staged_fit.hpp>

namespace penstock::kernels::cuda {

// How a threshold is estimated.
struct SteeringLaw {
  enum Kind : uint32_t {
    kNormal,     // `deviations` of a normal law around zero; learned: the right one over this
    kBisection,  // between mean and largest magnitude, by halving. Learned by these two: whether
    kTrimmed,    // a position between them is known, and which. Trimmed: in five steps from above
    kStages,     // as ../staged_fit.hpp says; learned: its numbers
  };
  Kind kind;
  double deviations = 0;
  StagedRule in_stages = {};
};

struct SteeringRules {
  Band band;
  float slack;         // thresholds are lowered by this factor before use
  float unit;          // of x, over the true gradient's
  float reuse_period;  // steps that an estimate serves
};

inline constexpr uint32_t kMostProbes = 15;  // counted in one pass: four halvings

// Scratch of one step, in device memory.
struct Steering {
  Statistics facts;
  StagedFit fit;      // in stages
  double fitted;      // by a normal law alone
  double low, width;  // what a search has left of [0, 1]
  uint64_t counts[kMostProbes];
  float probes[kMostProbes];
  float threshold;  // to select with; a NaN where there is none
  Reached reached;
  uint32_t arrived;  // blocks of a look
};

// s->threshold for x[n], n at least 1. `state` is what the gradient remembers: the last threshold
// in true units, 0 for none; the steps since the last estimate; what the law has learned. The
// workspace is that of reduce.hpp.
[[nodiscard]] int32_t estimate(const SteeringLaw& law, const SteeringRules& rules, const float* x,
                               uint64_t n, const float* state, Steering* s, Workspace workspace,
                               void* stream) noexcept;

// What `state` remembers of the selection of *count entries; a null count is none.
[[nodiscard]] int32_t learn(const SteeringLaw& law, const SteeringRules& rules,
                            const uint64_t* count, const Steering* s, uint64_t n, float* state,
                            void* stream) noexcept;

}  // namespace penstock::kernels::cuda

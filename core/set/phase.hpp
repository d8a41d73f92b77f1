// Prepares the gradients and buckets of a phase for a step, and reads their times after the step.
#pragma once

#include "core/bucket/compiled_plan.hpp"
#include "core/tuning/measure.hpp"

namespace penstock {

// Counts of the work that is left in a step.
struct StepCounts {
  uint32_t buckets = 0;         // buckets whose job has not ended
  uint32_t backward_parts = 0;  // deferring buckets whose part in backward has not ended
  uint32_t gradients = 0;       // gradients that are not ready
};

// Resets gradients and buckets for a step: gradients are open, and each bucket waits for all its
// gradients. Returns the counts at the beginning of the step.
StepCounts rearm(CompiledPlan& compiled, uint32_t phase, const CompiledPlan::Gradients& gradients);

// The times at which the first and the last gradient of the ended step became ready.
StepTimes ready_times(const CompiledPlan& compiled, uint32_t phase,
                      const CompiledPlan::Gradients& gradients);

}  // namespace penstock

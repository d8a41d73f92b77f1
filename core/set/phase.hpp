// The gradients and buckets of a phase, before a step of it and after one.
#pragma once

#include "core/bucket/works.hpp"
#include "core/tuning/measure.hpp"

namespace penstock {

// What is left of a step.
struct StepCounts {
  uint32_t buckets = 0;         // that have not ended
  uint32_t backward_parts = 0;  // likewise, of those that defer the rest
  uint32_t gradients = 0;       // not yet ready
};

// Nothing of the step has begun: gradients are open, buckets wait for all of theirs.
StepCounts rearm(Works& works, uint32_t phase, const Works::Gradients& gradients);

// When the first and the last of them became ready in the step that has ended.
StepTimes ready_times(const Works& works, uint32_t phase, const Works::Gradients& gradients);

}  // namespace penstock

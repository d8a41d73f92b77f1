#include "core/set/phase.hpp"

#include <algorithm>

namespace penstock {

StepCounts rearm(CompiledPlan& compiled, uint32_t phase, const CompiledPlan::Gradients& gradients) {
  StepCounts left;
  left.buckets = static_cast<uint32_t>(compiled.phase(phase).size());
  for (const auto& gradient : gradients) {
    gradient->progress = Gradient::Progress::open;
    gradient->pieces_left = 0;
    gradient->waited_for = false;
    if (!compiled.of(phase, gradient->index).empty()) ++left.gradients;
  }
  for (const auto& bucket : compiled.phase(phase)) {
    bucket->gradients_missing.store(bucket->n_gradients);
    bucket->launched.store(false);
    bucket->waits_for_launch.store(false);
    bucket->ran = bucket->started = false;
    if (bucket->defers()) ++left.backward_parts;
    for (const PieceRun& piece : bucket->pieces) ++piece.gradient->pieces_left;
  }
  return left;
}

StepTimes ready_times(const CompiledPlan& compiled, uint32_t phase,
                      const CompiledPlan::Gradients& gradients) {
  StepTimes times{UINT64_MAX, 0, 0};
  for (const auto& gradient : gradients) {
    if (compiled.of(phase, gradient->index).empty()) continue;
    times.first_ready_us = std::min(times.first_ready_us, gradient->ready_us);
    times.last_ready_us = std::max(times.last_ready_us, gradient->ready_us);
  }
  return times;
}

}  // namespace penstock

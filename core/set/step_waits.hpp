// The waits of the application in a step. The first wait closes the step. A result on a device
// takes two waits: until its copy is queued, and until this copy has ended.
#pragma once

#include "core/set/step.hpp"

namespace penstock {

// [application] one(), all() and rest() return when results lie in the gradients' storage.
// on_stream() returns when the copy back is queued and `stream` waits for this copy. backward() is
// Step's wait. poll() returns at once and does not close the step.
class StepWaits {
 public:
  // The arguments must outlive the object.
  StepWaits(const SetContext& set, const CompiledPlan::Gradients& gradients, Step& step)
      : set_(set), gradients_(gradients), step_(step) {}

  Status one(uint64_t index);
  Status all();
  Status on_stream(uint64_t index, void* stream);
  Status backward() { return step_.wait_until_backward_ended(); }
  // For the end of the step: waits for all results that the application has not waited for.
  Status rest();
  Status poll(uint64_t index, bool& done);

 private:
  Status until_returned(Gradient& gradient);

  const SetContext& set_;
  const CompiledPlan::Gradients& gradients_;
  Step& step_;
};

}  // namespace penstock

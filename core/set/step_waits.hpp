// What the application waits for in a step: the first wait closes it. Results on devices are waited
// for twice, until their copies are queued and until these have ended.
#pragma once

#include "core/set/step.hpp"

namespace penstock {

// [application] one, all and rest return when results lie where they belong; on_stream when the
// copy there is queued and `stream` waits for it; backward as Step says. poll returns at once and
// closes nothing.
class StepWaits {
 public:
  // All outlive it.
  StepWaits(const SetContext& set, const Works::Gradients& gradients, Step& step)
      : set_(set), gradients_(gradients), step_(step) {}

  Status one(uint64_t index);
  Status all();
  Status on_stream(uint64_t index, void* stream);
  Status backward() { return step_.wait_until_backward_ended(); }
  // For the end of the step: what nobody has waited for yet.
  Status rest();
  Status poll(uint64_t index, bool& done);

 private:
  Status until_returned(Gradient& gradient);

  const SetContext& set_;
  const Works::Gradients& gradients_;
  Step& step_;
};

}  // namespace penstock

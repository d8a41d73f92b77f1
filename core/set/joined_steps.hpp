// The steps in which a joined rank takes part (Horovod's join): its data has ended, and all its
// gradients are zero, but other ranks go on.
#pragma once

#include "core/set/step_end.hpp"

#include <string_view>

namespace penstock {

class JoinedSteps {
 public:
  // The arguments must outlive the object.
  JoinedSteps(SetContext& set, Step& step, StepEnd& step_end)
      : set_(set), step_(step), step_end_(step_end) {}

  // [application] Other ranks have begun step `number` (an attempt: forgotten steps count too).
  // Begins it here with zero gradients and with the rates in `facts`, and does not wait for it. It
  // first ends earlier steps that are still open, as applied. It does nothing if a step is under
  // way or this rank is past that step.
  Status begin_with_zeros(uint64_t number, std::string_view facts);
  // [application] Other ranks have ended that step: ends it here with their outcome `forgotten`,
  // one byte for each gradient. Waits for the step.
  Status end(uint64_t number, std::string_view forgotten);
  // [any] Another rank has joined: notifies it of the step under way.
  void tell_where() { step_.tell_where(); }
  bool under_way() const { return step_.under_way(); }

 private:
  Status catch_up(uint64_t number);

  SetContext& set_;
  Step& step_;
  StepEnd& step_end_;
};

}  // namespace penstock

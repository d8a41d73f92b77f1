// The steps of others, in which a rank takes part that has joined: its data is at an end, and every
// gradient of it is zero.
#pragma once

#include "core/set/step_end.hpp"

#include <string_view>

namespace penstock {

class JoinedSteps {
 public:
  // All outlive it.
  JoinedSteps(SetContext& set, Step& step, StepEnd& step_end)
      : set_(set), step_(step), step_end_(step_end) {}

  // [application] Others have begun the step of this number (attempt): every gradient is zero here.
  // Does not wait for it. It first ends earlier steps that are still open, as applied. It does
  // nothing if a step is under way, or this rank is past that step.
  Status begin_with_zeros(uint64_t number, std::string_view facts);
  // [application] The same for the end of that step, as its end was told; waits for it.
  Status end(uint64_t number, std::string_view forgotten);
  // [any] Another rank has joined: it hears of the step under way.
  void tell_where() { step_.tell_where(); }
  bool under_way() const { return step_.under_way(); }

 private:
  Status catch_up(uint64_t number);

  SetContext& set_;
  Step& step_;
  StepEnd& step_end_;
};

}  // namespace penstock

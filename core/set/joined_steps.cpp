#include "core/set/joined_steps.hpp"

namespace penstock {

Status JoinedSteps::begin_with_zeros(uint64_t number, std::string_view facts) {
  PENSTOCK_TRY(catch_up(number));
  if (set_.attempt != number || step_.under_way()) return {};
  return step_.begin_with_zeros(facts);
}

Status JoinedSteps::end(uint64_t number, std::string_view forgotten) {
  PENSTOCK_TRY(catch_up(number));
  if (set_.attempt != number) return {};
  return step_end_.end_as_told(forgotten);
}

// Steps that the others ended before they knew that somebody has joined had no message of theirs to
// wait for.
Status JoinedSteps::catch_up(uint64_t number) {
  while (set_.attempt < number) PENSTOCK_TRY(step_end_.end(PENSTOCK_STEP_APPLIED));
  return {};
}

}  // namespace penstock

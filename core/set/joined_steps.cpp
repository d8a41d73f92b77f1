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
  return step_end_.end_as_notified(forgotten);
}

// Ends, as applied, the steps that the other ranks ended before they knew that this rank has
// joined: no notification of their end comes.
Status JoinedSteps::catch_up(uint64_t number) {
  while (set_.attempt < number) PENSTOCK_TRY(step_end_.end(PENSTOCK_STEP_APPLIED));
  return {};
}

}  // namespace penstock

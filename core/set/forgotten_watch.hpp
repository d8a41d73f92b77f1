// Notices that a guard of the application, such as a limit on the norm, rejects every step. A
// forgotten step leaves nothing in the memories. But the mass that an earlier step has left there
// returns in each following step, so that the guard may reject all steps for ever.
#pragma once

#include "core/bucket/context.hpp"
#include "core/set/services.hpp"
#include "core/state/state_store.hpp"

#include <cstdint>

namespace penstock {

class ForgottenWatch {
 public:
  // The arguments must outlive the object.
  ForgottenWatch(SetContext& set, const Services& services) : set_(set), services_(services) {}

  // [control] After a step. `counts`: some gradient of the step was applied. True if
  // [runtime] forget_limit steps in a row were forgotten: the caller must then drop the mass in the
  // memories. After 8 such steps each rank with mass in its memories warns, once.
  Result<bool> ends_patience(bool counts, const StateStore& states);
  // The mass in the memories was dropped.
  void begin_again() { in_a_row_ = 0; }

 private:
  Status warn(const StateStore& states);

  SetContext& set_;
  const Services& services_;
  uint64_t in_a_row_ = 0;  // forgotten steps, up to the last one
  bool has_warned_ = false;
};

}  // namespace penstock

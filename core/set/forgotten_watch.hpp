// Notices a guard of the application, as a limit on the norm, that rejects every step. A forgotten
// step leaves nothing in the memories; but what an earlier step has left there comes again in each
// step that follows, and the guard may reject them all for ever.
#pragma once

#include "core/bucket/context.hpp"
#include "core/set/services.hpp"
#include "core/state/state_store.hpp"

#include <cstdint>

namespace penstock {

class ForgottenWatch {
 public:
  // Both outlive it.
  ForgottenWatch(SetContext& set, const Services& services) : set_(set), services_(services) {}

  // [control] After a step. `counts`: some gradient of it was applied. True if so many steps in a
  // row were forgotten that what memories keep is to be dropped ([runtime] forget_limit). Each rank
  // warns once before that.
  Result<bool> ends_patience(bool counts, const StateStore& states);
  // What memories keep was dropped.
  void begin_again() { in_a_row_ = 0; }

 private:
  Status warn(const StateStore& states);

  SetContext& set_;
  const Services& services_;
  uint64_t in_a_row_ = 0;  // forgotten steps, up to the last one
  bool has_warned_ = false;
};

}  // namespace penstock

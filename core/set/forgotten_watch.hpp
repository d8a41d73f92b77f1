// A guard that never lets go: a forgotten step leaves nothing, so it cannot repeat itself; but what
// an earlier, applied one has left in the memories comes again in each that follows, and a limit on
// the norm may throw them all away, for ever.
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

  // [control] After a step. `counts`: some gradient of it was applied. True where so many in a row
  // were forgotten that what memories keep is to be dropped ([runtime] forget_limit). Rank by rank
  // a warning, once, before.
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

// What the control server's state is made with.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace penstock::control {

struct StateOptions {
  uint32_t size = 1;
  uint64_t deadline_us = 0;  // a member silent for longer has failed
  uint64_t pulse_us = 0;     // interval of the server's own heartbeat
  // Age of a wait at its first warning, and the interval of repeats; 0: no warnings.
  uint64_t warning_us = 0;
  uint64_t start_us = 0;    // now
  uint64_t meeting_us = 0;  // from then on, for all to join; 0: the deadline
  uint64_t settle_us = 0;   // from then on, before which nobody goes on
  // Ranks that live are waited for this long, in operations and steps; 0: without an end.
  uint64_t busy_limit_us = 0;
  // Ranks that wait for each other, so that none can go on, are let go after this; 0: never.
  uint64_t circle_us = 0;
};

// Must not call back. Frames for ranks that have no connection are dropped by whoever sends.
using Send = std::function<void(uint32_t rank, std::string frame)>;

}  // namespace penstock::control

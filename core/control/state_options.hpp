// The options of the control server's state.
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
  uint64_t start_us = 0;  // time of the start
  // After start_us, the longest wait for all ranks to join; 0: the deadline.
  uint64_t rendezvous_us = 0;
  uint64_t settle_us = 0;  // after start_us, the time before which no rank continues
  // The longest wait for live ranks, in operations and steps; 0: no limit.
  uint64_t busy_limit_us = 0;
  // Ranks that wait for each other in a circle are released after this time; 0: never.
  uint64_t circle_us = 0;
};

// Sends a frame. Must not call back into the state. Drops frames for ranks that have no connection.
using Send = std::function<void(uint32_t rank, std::string frame)>;

}  // namespace penstock::control

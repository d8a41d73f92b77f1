// The rendezvous of a run: it gives the ranks, their hosts, and a store that all ranks reach. With
// the result, a transport without its own launcher can join.
#pragma once

#include "core/comm/communication.hpp"
#include "core/control/control.hpp"
#include "core/control/launcher.hpp"

#include <memory>

namespace penstock {

// The result of a rendezvous. The functions below take `control` with the limits and the callbacks
// for an abort, and fill in the ranks and hosts.
struct JoinedRanks {
  Group world;
  std::unique_ptr<Control> control;  // its store is the run's key-value store
};

// Rendezvous over a transport that has joined. `world` is the open channel of all its ranks: it
// carries rank 0's address, and the callbacks in `control` may use it afterwards. [control]
// Collective over all ranks of the run.
Result<JoinedRanks> meet_over(Communication& communication, Channel& world, uint64_t deadline_us,
                              Control::Options control);

// Rendezvous at the place in a launcher's variables (launcher.hpp): rank 0 serves the control plane
// at that port, and the other ranks connect to it. Two ranks share a host if host name and boot id
// are equal. [control] Collective over all ranks of the run. DEADLINE_EXCEEDED with the missing
// ranks, or with the address at which rank 0 was not found.
Result<JoinedRanks> meet_at(const Rendezvous& rendezvous, Control::Options control);

// Rank and size from a program whose ranks are connected already, and a function that reaches all
// of these ranks.
struct Introduction {
  uint32_t rank = 0;
  uint32_t size = 1;
  std::string by;  // used in messages: "torch's default group"
  // Returns the texts of all ranks, in rank order. Collective.
  std::function<Result<std::vector<std::string>>(std::string_view text, uint64_t timeout_us,
                                                 uint64_t warning_us)>
      gather;
};

// Rendezvous of ranks with an Introduction: rank 0 serves the control plane at a port of its
// choice, which the other ranks receive. Two ranks share a host as in meet_at. [control]
// Collective.
Result<JoinedRanks> meet_through(const Introduction& introduction, Control::Options control);

}  // namespace penstock

// How the ranks of a run find each other: who is there, on which hosts, and a store that all reach.
// With that a transport can join that has no launcher of its own.
#pragma once

#include "core/comm/communication.hpp"
#include "core/control/control.hpp"
#include "core/control/launcher.hpp"

#include <memory>

namespace penstock {

// `control` in what follows: limits, and what is to be done at an abort; who and where the ranks
// are is filled in.
struct Meeting {
  Group world;
  std::unique_ptr<Control> control;  // its store is the run's key-value store
};

// Meets over a transport that has joined: `world` is the open channel of all its ranks, over which
// rank 0's address goes round, and of which whatever `control` gets to do may make use afterwards.
// [control] Collective over all ranks of the run.
Result<Meeting> meet_over(Communication& communication, Channel& world, uint64_t deadline_us,
                          Control::Options control);

// Meets where a launcher's variables say (launcher.hpp): rank 0 serves the control plane at that
// port, the others come to it. Ranks are on the same host where name and boot of it are equal.
// [control] Collective over all ranks of the run. DEADLINE_EXCEEDED with the ranks that did not
// come, or with the address at which rank 0 is not to be found.
Result<Meeting> meet_at(const Rendezvous& rendezvous, Control::Options control);

// Who this process is by the word of somebody whose ranks have met already, and a way to all of
// them.
struct Introduction {
  uint32_t rank = 0;
  uint32_t size = 1;
  std::string by;  // for messages: "torch's default group"
  // Texts of all ranks, in their order. Collective.
  std::function<Result<std::vector<std::string>>(std::string_view text, uint64_t timeout_us,
                                                 uint64_t warning_us)>
      gather;
};

// Meets where ranks were introduced: rank 0 serves the control plane at a port of its own choice,
// which the others hear. Ranks are on the same host as in meet_at. [control] Collective.
Result<Meeting> meet_through(const Introduction& introduction, Control::Options control);

}  // namespace penstock

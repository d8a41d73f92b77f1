// How the ranks of a run find each other: who is there, on which hosts, and a store that all reach.
// With that a transport can join that has no launcher of its own.
#pragma once

#include "core/comm/group.hpp"
#include "core/comm/launcher.hpp"
#include "core/control/control.hpp"

#include <memory>

namespace penstock {

struct Meeting {
  Group world;
  std::unique_ptr<Control> control;  // its store is the run's key-value store
};

// Meets where a launcher's variables say (launcher.hpp): rank 0 serves the control plane at that
// port, the others come to it. Ranks are on the same host where name and boot of it are equal.
// [control] Collective over all ranks of the run. `control`: what is to be done at an abort and the
// like; rank, size and place are filled in. DEADLINE_EXCEEDED with the ranks that did not come, or
// with the address at which rank 0 is not to be found.
Result<Meeting> meet_at(const Rendezvous& rendezvous, Control::Options control);

}  // namespace penstock

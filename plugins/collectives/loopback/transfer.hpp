// What is done with a rendezvous whose parts have all arrived: segments are reduced, elements
// copied.
#pragma once

#include "exchange.hpp"

namespace penstock::loopback {

// Called once, before any member calls transfer: cuts the reduction into segments.
void prepare_reduction(Rendezvous& rendezvous);

// One bounded step of what `ticket` wants from its rendezvous in a group of `size`; true at the
// end. Throws when what the others sent does not fit what this member expects.
bool transfer(Ticket& ticket, uint32_t size);

}  // namespace penstock::loopback

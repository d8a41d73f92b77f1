// The work on a rendezvous whose parts have all arrived: segments are reduced and elements are
// copied.
#pragma once

#include "exchange.hpp"

namespace penstock::loopback {

// Called once, before any member calls transfer: cuts the reduction into segments.
void prepare_reduction(Rendezvous& rendezvous);

// Takes one bounded step of `ticket`'s message in a group of `size` ranks; true once the message is
// complete. Throws if data from other members does not fit this member's message.
bool transfer(Ticket& ticket, uint32_t size);

}  // namespace penstock::loopback

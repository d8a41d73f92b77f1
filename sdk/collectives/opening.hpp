// Openings: they set up the data that each pair of ranks exchanges in a message, and check the
// headers of peers.
#pragma once

#include "ticket.hpp"

namespace penstock::collectives {

// Sets up peers, streams and own part for the ticket's message.
void lay_out(Ticket& ticket);

// Posts the receives of all expected openings.
void expect_openings(Ticket& ticket);

// Posts the opening to `rank`.
void send_opening(Ticket& ticket, uint32_t rank, bool failed = false);

// Sends a grant: `rank` may send the segments behind its opening.
void send_grant(Ticket& ticket, uint32_t rank);

// Takes the opening of `bytes` bytes that came from `rank`: checks it, places its data, and sets up
// the segments that follow. Stores an error in ticket.failure.
void take_opening(Ticket& ticket, uint32_t rank, uint64_t bytes);

}  // namespace penstock::collectives

// The rank-ordered algorithms: every rank sends directly to the ranks that need its data.
//
// All-reduce of more than `small_bytes`: rank j owns the j-th part of the elements, receives every
// rank's j-th part, adds the parts in ascending order of ranks and sends its result to all ranks:
// 2 (P-1)/P m bytes per rank, for any P. It is a pipeline of segments: while a segment is added,
// the next segments travel. Up to `small_bytes` every rank sends all its data to every rank and
// adds alone, in ascending order of ranks too: one step. Broadcast is direct up to four ranks;
// beyond, it uses a binomial tree, segment by segment.
#pragma once

#include "ticket.hpp"

namespace penstock::collectives {

// Fills a fresh ticket (channel and message set) and posts its first requests. Never waits.
void start_direct(Ticket& ticket);

// Does a bounded amount of work; returns true at the end. Throws when the message has failed.
bool progress_direct(Ticket& ticket);

// Passes the channel's ended requests to their tickets. An error stays with the ticket to which it
// belongs.
void collect(Channel& channel);

// Ends the use of a ticket, even if the wire still has requests of it.
void give_back(Ticket& ticket);

// Must be called after an abort, for a ticket that was given back. It cancels receives on the whole
// channel for which no data have come, and waits a bounded time for transfers that have begun.
// Afterwards the transport does not touch the message's buffers, unless a peer has stopped in the
// middle of a segment. Throws the errors of the wire.
void settle(Channel& channel, const Ticket& ticket);

// "ranks 1, 3": the ranks whose data are still missing.
std::string silent_ranks(const Ticket& ticket);

}  // namespace penstock::collectives

// The rank-ordered algorithms: every rank sends straight to those that need its data.
//
// All-reduce of more than `small_bytes`: rank j owns the j-th part of the elements, gets every
// rank's j-th part, adds them in ascending rank order and sends its result to all: 2 (P-1)/P m
// bytes per rank, whatever P. It is a pipeline of segments: while one is added up the next ones
// travel. Up to `small_bytes` everybody sends everything to everybody and adds up alone, in the
// same order: one step. Broadcast is direct up to four ranks, else down a binomial tree, segment by
// segment.
#pragma once

#include "ticket.hpp"

namespace penstock::collectives {

// Fills a fresh ticket (channel and message set) and posts its first requests. Never waits.
void start_direct(Ticket& ticket);

// Bounded work; true at the end. Throws when the message has failed.
bool progress_direct(Ticket& ticket);

// What has ended among the channel's requests goes to its tickets. Errors stay with the ticket they
// belong to.
void collect(Channel& channel);

// Ends the use of a ticket, whatever the wire still does for it.
void give_back(Ticket& ticket);

// After an abort, for a ticket that was given back: takes back what nothing has come for, on the
// whole channel, and gives what has begun a moment to end. So the transport stays away from the
// message's buffers afterwards, unless a peer has stopped in the middle of a segment. Throws what
// the wire says.
void settle(Channel& channel, const Ticket& ticket);

// "ranks 1, 3": from whom something is still to come.
std::string silent_ranks(const Ticket& ticket);

}  // namespace penstock::collectives

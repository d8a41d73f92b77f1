// MPI's own non-blocking collectives, for comparison and for networks that MPI knows better. They
// match by order of submission, and their sums depend on MPI's choice of algorithm.
#pragma once

#include "ticket.hpp"

namespace penstock::mpi {

// Starts the message with MPI's own operation and returns true, or returns false where MPI has none
// that fits (16-bit floats, counts that do not fit an int or that are not known, send and receive).
// Every rank decides alike.
bool start_native(Ticket& ticket);

bool progress_native(Ticket& ticket);

}  // namespace penstock::mpi

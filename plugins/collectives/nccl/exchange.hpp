// What a message is in NCCL's operations.
#pragma once

#include "library.hpp"

#include <penstock/collective.h>

namespace penstock::nccl {

struct Members {
  const Library& library;
  Handle* communicator;
  cudaStream_t stream;
  uint32_t rank;
  uint32_t size;
};

// Whether this rank has to be told first how many elements come. Equal on all ranks.
bool needs_counts(const penstock_message& message);

// Queues what this rank sends as counts, from mine[size], and what it is told, into theirs[size];
// both on the device.
void queue_counts(const Members& members, const penstock_message& message, uint64_t* mine,
                  uint64_t* theirs);
// What this rank has to say to each, into mine[size] of the host.
void write_counts(const Members& members, const penstock_message& message, uint64_t* mine);

// Queues the message itself, of which all counts are known, a receive's in `count`. `scratch`: a
// byte of the device.
void queue_message(const Members& members, const penstock_message& message, void* scratch);

// Types that NCCL reduces, a PENSTOCK_DTYPE_BIT each.
uint64_t reduced_dtypes();

}  // namespace penstock::nccl

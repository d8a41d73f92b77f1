// Translates messages into operations of NCCL.
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

// Whether the ranks must exchange counts of elements before the message. Equal on all ranks.
bool needs_counts(const penstock_message& message);

// Queues the exchange of counts: this rank sends the counts in mine[size], and the received counts
// go into theirs[size]. Both arrays lie on the device.
void queue_counts(const Members& members, const penstock_message& message, uint64_t* mine,
                  uint64_t* theirs);
// Writes the number of elements that this rank sends to each rank into mine[size], in host memory.
void write_counts(const Members& members, const penstock_message& message, uint64_t* mine);

// Queues the message itself. All its counts must be known; the count of a receive is in `count`.
// `scratch`: one byte on the device.
void queue_message(const Members& members, const penstock_message& message, void* scratch);

// The dtypes that NCCL reduces, one PENSTOCK_DTYPE_BIT each.
uint64_t reduced_dtypes();

}  // namespace penstock::nccl

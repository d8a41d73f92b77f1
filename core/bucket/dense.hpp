// Legs that move values as they are: gradients to those who own their sums, and results back.
//
// The buffer holds owner after owner what each owns of the bucket's pieces, and behind each share a
// flag that all its senders set: so every owner learns at once whether some rank of the host has
// gradients that are not finite, and every rank in the end whether the bucket is void. What goes
// is announced has no flags: its header tells (announcement.hpp).
#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

// The messages of the leg that scatters sums to the coding behind it, and of the one that spreads
// what comes out of it; null: nothing does. OUT_OF_MEMORY on a device. [control]
Status lay_out_scattered(BucketRun& bucket, Leg& scatter, Leg* spread);

// Pieces into the send buffer. On a device that is queued.
Status pack_scattered(BucketRun& bucket, MessageRun& message);
// Tells the coding whether the host's gradients are finite, and leaves in its sums what is encoded.
Status read_scattered(BucketRun& bucket, MessageRun& message);
// The flag of this rank's share: whether the bucket is void, and whether the gradients of this host
// were taken nevertheless.
void mark_spread(BucketRun& bucket, MessageRun& message);
// Results into the pieces. On a device that is queued.
Status unpack_spread(BucketRun& bucket, MessageRun& message);

}  // namespace penstock

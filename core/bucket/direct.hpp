// Messages that go from device to device, over the transport that a run has for that (decision
// 0022). Of what is worked on on a device, sums and pairs go so: no host has to look at their
// values. What hosts have to know of them goes before, in host memory:
//
//   header   an all-gather: whether gradients are finite, and of pairs how many each rank sends
//   turn     a broadcast, when all headers have come: the number of the exchange on the channel
//
// So every rank knows all counts, and a void bucket before anything has left a device. Indices of
// peers are looked at on the device, before decode uses them.
#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

// Whether a round of an item goes so: known at plan time. Every rank answers alike, or the needs
// that ranks compare differ.
bool goes_directly(const Coding& coding, const ItemRun& item, uint32_t round);
// Whether something of it goes so: some round, or what the ranks of a host add.
bool sends_directly(const BucketRun& bucket, const Coding& coding, const ItemRun& item);

// Header and turn of a round, where one of its messages goes so. [control]
void lay_out_prelude(BucketRun& bucket, Leg& leg, uint32_t round);
// Room for what is found of peers' indices, after the messages are laid out. [control]
Status lay_out_verdicts(BucketRun& bucket);

// ---- a step [engine] ----

inline bool has_direct(const Leg& leg, uint32_t round) {
  return leg.preludes[round].header != nullptr;
}
// Fills in the header of a round: what goes is known.
void write_header(BucketRun& bucket, Leg& leg, uint32_t round);
// What the headers say: whether the bucket is void, or the sum of this host, and where payloads
// will lie. INVALID_PAYLOAD.
Status read_headers(BucketRun& bucket, Leg& leg, uint32_t round);
// Whether something goes from device to device in this step; where a host has no sum nothing does,
// and the turn is passed over.
bool takes_turn(BucketRun& bucket, Leg& leg, uint32_t round);
// Points the round's messages at what they send; where their transport knows no streams, the job
// has to park until that lies there.
Status prepare_direct(BucketRun& bucket, Leg& leg, uint32_t round);
// The device looks at the indices that have arrived; then what it has found. INVALID_PAYLOAD.
Status look_at_indices(BucketRun& bucket, Leg& leg, uint32_t round);
Status take_verdicts(BucketRun& bucket, Leg& leg, uint32_t round);

}  // namespace penstock

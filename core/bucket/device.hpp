// The part of a bucket that is worked on on a device (decision 0021). Its tensors and payloads lie
// there, the plugins queue their work on the stream of the set's residents, and only payloads are
// copied, to and from messages in pinned memory. Nothing here waits: what the host has to know
// comes by a copy, and the job parks until that has ended.
#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

struct DevicePart {
  Event copied;        // what the job parks for
  DeviceMemory found;  // for each piece of the bucket, 32 bits: some value is not finite
  PinnedMemory flags;  // the same, as they came from the device
  uint64_t n_flags = 0;
  bool brings = false;  // payloads of the round under way

  bool is_nonfinite(size_t piece) const {
    return reinterpret_cast<const uint32_t*>(flags.data())[piece] != 0;
  }
};

// What the bucket needs for pieces that are worked on on a device; nothing where there is none.
// OUT_OF_MEMORY, DEVICE_ERROR; INTERNAL on a route that has no way for them. [control]
Status lay_out_device_part(BucketRun& bucket);

// Items on a device: their tensors say where. [control]
void place_on_device(ItemRun& item, const Device& device);

// ---- a step [engine] ----

// The stream waits for the gradients and looks for values that are not finite; what it finds comes
// to the host.
Status look_on_device(BucketRun& bucket);
// The payloads of a round that were encoded there, into the leg's messages.
Status bring_payloads(BucketRun& bucket, Leg& leg, uint32_t round);
// What has arrived of other ranks, to where decode finds it.
Status take_payloads(BucketRun& bucket, Leg& leg, uint32_t round);

// A piece there has its result: NaN where the bucket is void.
Status give_out_on_device(BucketRun& bucket, PieceRun& piece);

}  // namespace penstock

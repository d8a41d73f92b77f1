// The part of a bucket that is worked on on a device (decision 0021). Its tensors and payloads lie
// there, the plugins queue their work on the stream of the set's residents, and only payloads are
// copied, to and from messages in pinned memory. Nothing here waits: what the host has to know
// comes by a copy, and the job parks until that has ended.
#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

// Numbers that the device finds and the host has to know, and what came of them.
template <typename T>
struct FoundNumbers {
  uint64_t n = 0;
  NumberMemory::Place memory;

  Status make(NumberMemory& from, uint64_t count) {
    n = count;
    PENSTOCK_ASSIGN(memory, from.take(n * sizeof(T)));
    return {};
  }
  T* place(uint64_t index) const { return static_cast<T*>(memory.there()) + index; }
  Status clear(const Stream& stream) const { return stream.clear(place(0), n * sizeof(T)); }
  Status bring(const Stream& stream) const {
    return stream.copy_to_host(memory.here(), memory.there(), n * sizeof(T));
  }
  T operator[](uint64_t index) const { return static_cast<const T*>(memory.here())[index]; }
};

struct DevicePart {
  Event copied;  // what the job parks for
  std::vector<penstock_device_values> looked_at;
  FoundNumbers<uint32_t> flags;   // for each piece of the bucket: some value is not finite
  FoundNumbers<uint32_t> sums;    // the same for each item of the coding of sums
  FoundNumbers<float> scalars;    // of the prologue: what memories have measured
  FoundNumbers<uint64_t> counts;  // of sections whose counts vary
  // Of pairs of peers that lie on the device, which the host cannot look at.
  std::vector<penstock_index_list> lists;
  FoundNumbers<uint32_t> wrong_indices;  // [rank * items of the message + item]
  // What the job parks for: before its first round, and in the round under way.
  bool brings_sums = false;
  bool brings_scalars = false;
  bool brings_counts = false;
  bool brings_payloads = false;
  bool brings_verdicts = false;
  bool finishes_sends = false;
  std::unique_ptr<Stopwatch> settling;  // null: the bucket is not watched
  bool has_times = false;               // of the last step on the device (watch.hpp)

  bool is_nonfinite(size_t piece) const { return flags[piece] != 0; }
};

// INTERNAL where pieces are worked on on a device and the bucket's route has no way for them, which
// was known before they were. [control]
Status check_way_on_device(const BucketRun& bucket);
// What the bucket needs for such pieces, after its payloads have their sections; nothing where
// there is none. OUT_OF_MEMORY, DEVICE_ERROR; INTERNAL where legs wait for the next forward.
// [control]
Status lay_out_device_part(BucketRun& bucket);

// Items on a device: their tensors say where. [control]
void place_on_device(ItemRun& item, const Device& device);

// ---- a step [engine] ----

// The stream waits for the gradients and looks for values that are not finite; what it finds comes
// to the host.
Status look_on_device(BucketRun& bucket);
// Sums that this rank owns, of what is coded again: in true units, and looked at likewise.
Status look_at_sums(BucketRun& bucket, Coding& coding);
// What memories have measured there, to the host; and then into the prologue.
Status bring_scalars(BucketRun& bucket, const Coding& coding);
void take_scalars(BucketRun& bucket, Coding& coding);
// The counts that encode has left to the device, if it has; and then what they mean.
Status bring_counts(BucketRun& bucket, Leg& leg, uint32_t round);
Status take_counts(BucketRun& bucket, Leg& leg, uint32_t round);
// The payloads of a round that were encoded there, into the leg's messages.
Status bring_payloads(BucketRun& bucket, Leg& leg, uint32_t round);
// What has arrived of other ranks, to where decode finds it.
Status take_payloads(BucketRun& bucket, Leg& leg, uint32_t round);

// A piece there has its result: NaN where the bucket is void.
Status give_out_on_device(BucketRun& bucket, PieceRun& piece);

}  // namespace penstock

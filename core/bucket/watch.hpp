// How long the device takes for what a bucket's job queues on it, for those who plan by it: a call
// there takes the host as long as it is queued. Marks stand in the stream around it; what lies
// between them is read when the bucket runs again, and nothing waits for it.
#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

// After its part on the device is laid out; nothing where it has none. DEVICE_ERROR. [control]
Status lay_out_watches(BucketRun& bucket);

// ---- a step [engine] ----

// The marks of a stretch. Null: none.
Status begin_watch(const BucketRun& bucket, Stopwatch* watch);
Status end_watch(const BucketRun& bucket, Stopwatch* watch);

// Adds what the device has taken in the bucket's last step to encode_us and decode_us and sets that
// of its calls, if all of it is done; device->has_times says so. Each step is told once.
Status take_watched(BucketRun& bucket);

// What the host took for a stage, calls and all between them; and for one call of it. Of a watched
// bucket the host's calls on the CPU count, and nothing else of it.
void note_stage(const BucketRun& bucket, uint64_t took_us, uint64_t& whole_us);
void note_call(const BucketRun& bucket, bool on_device, uint64_t took_us, uint64_t& whole_us);

}  // namespace penstock

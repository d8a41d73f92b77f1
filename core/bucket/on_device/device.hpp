// The part of a bucket that is device-resident (decision 0021). Its tensors and payloads lie on the
// device, plugins queue their work on the stream of the set's residents, and only payloads are
// copied, to and from messages in pinned memory. No function here waits: the facts that the host
// needs are copied, and the job parks until the copy has ended.
#pragma once

#include "core/bucket/placement.hpp"

namespace penstock {

// Numbers that the device computes and the host reads after a copy.
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
  Event copied;                              // the event for which the job parks
  std::vector<penstock_device_copy> copies;  // queued in one call
  std::vector<const Resident*> writers;      // the last gradient of each stream
  std::vector<penstock_device_values> looked_at;
  FoundNumbers<uint32_t> flags;   // for each piece of the bucket: some value is not finite
  FoundNumbers<uint32_t> sums;    // for each item of the coding of sums: a value is not finite
  FoundNumbers<float> scalars;    // of the prologue, as memories have measured them
  FoundNumbers<uint64_t> counts;  // of sections whose counts vary
  // Index lists of peers that lie on the device, where the host cannot check them.
  std::vector<penstock_index_list> lists;
  FoundNumbers<uint32_t> wrong_indices;  // [rank * items of the message + item]
  bool has_times = false;                // of the last step on the device (watch.hpp)
};

// The placement of a bucket with a device part.
class DevicePlacement : public Placement {
 public:
  DevicePart part;
};
inline DevicePart& part_of(const BucketRun& bucket) {
  return static_cast<DevicePlacement&>(*bucket.placement).part;
}

// Makes the memory and events that the bucket needs for its device-resident pieces, after its
// payloads have their sections; `first` is the first such piece. OUT_OF_MEMORY, DEVICE_ERROR;
// INTERNAL if legs wait for the next forward. [control]
Status lay_out(DevicePart& part, BucketRun& bucket, const PieceRun& first);

// Adds the name of the gradient to an error of a device.
Status named(Status status, const Gradient& gradient);
inline bool is_on_device(const WorkPlace& place) {
  return !place.works_at_once();
}
// Whether the memory measures on the device.
bool measures_on_device(const MemoryCall& call);
// The first device-resident piece; null if there is none.
const PieceRun* first_on_device(const BucketRun& bucket);

// A stage that waits for the event `copied` of the bucket's device part.
class DeviceStage : public Stage {
 public:
  explicit DeviceStage(std::string_view name, Part part = Part::none)
      : Stage(name, part, Wait::device) {}
  Status poll(BucketRun& bucket, uint64_t, bool& has_come) override {
    return part_of(bucket).copied.query(has_come);
  }
};

}  // namespace penstock

// The part of a bucket that is worked on on a device (decision 0021). Its tensors and payloads lie
// there, the plugins queue their work on the stream of the set's residents, and only payloads are
// copied, to and from messages in pinned memory. Nothing here waits: what the host has to know
// comes by a copy, and the job parks until that has ended.
#pragma once

#include "core/bucket/placement.hpp"

namespace penstock {

// Numbers that the device computes, and the host reads after a copy.
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
  Event copied;                              // what the job parks for
  std::vector<penstock_device_copy> copies;  // that go together
  std::vector<const Resident*> writers;      // the last gradient of each stream
  std::vector<penstock_device_values> looked_at;
  FoundNumbers<uint32_t> flags;   // for each piece of the bucket: some value is not finite
  FoundNumbers<uint32_t> sums;    // the same for each item of the coding of sums
  FoundNumbers<float> scalars;    // of the prologue: what memories have measured
  FoundNumbers<uint64_t> counts;  // of sections whose counts vary
  // Index lists of peers that lie on the device, where the host cannot check them.
  std::vector<penstock_index_list> lists;
  FoundNumbers<uint32_t> wrong_indices;  // [rank * items of the message + item]
  bool has_times = false;                // of the last step on the device (watch.hpp)
};

// The placement of a bucket that has such a part.
class DevicePlacement : public Placement {
 public:
  DevicePart part;
};
inline DevicePart& part_of(const BucketRun& bucket) {
  return static_cast<DevicePlacement&>(*bucket.placement).part;
}

// Makes what the bucket needs for its pieces on the device, after its payloads have their sections;
// `first` is the first such piece. OUT_OF_MEMORY, DEVICE_ERROR; INTERNAL if legs wait for the next
// forward. [control]
Status lay_out(DevicePart& part, BucketRun& bucket, const PieceRun& first);

// Errors of a device with the gradient's name.
Status named(Status status, const Gradient& gradient);
inline bool is_on_device(const WorkPlace& place) {
  return !place.works_at_once();
}
// What the memory measures is found on the device.
bool measures_on_device(const MemoryCall& call);
// The first piece that is worked on on a device; null: none is.
const PieceRun* first_on_device(const BucketRun& bucket);

// A stage that waits until `copied` of the bucket's device part has been reached.
class DeviceStage : public Stage {
 public:
  explicit DeviceStage(std::string_view name, Part part = Part::none)
      : Stage(name, part, Wait::device) {}
  Status poll(BucketRun& bucket, uint64_t, bool& has_come) override {
    return part_of(bucket).copied.query(has_come);
  }
};

}  // namespace penstock

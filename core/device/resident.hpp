// Device-resident gradients: plugins queue their work on a stream of the engine, and only payloads
// that are sent or received are copied.
//
//   producer's stream     ... writes the storage | written
//   engine's inspection       waits for written | inspects
//   engine's                      encodes, payloads out ... in, decodes | returned
//   application's stream                                      waits for returned | ...
//
// All device-resident gradients of a set lie on one device and share the engine's two streams. An
// inspection waits for its own gradient only: the engine queues the remaining work when the result
// of the inspection has arrived, so a late gradient does not delay an earlier gradient. On the
// other stream, the work of one step is done before the next step begins, so device memory needs no
// other ordering.
#pragma once

#include "core/device/device_side.hpp"
#include "core/device/number_memory.hpp"

#include <deque>
#include <memory>
#include <span>

namespace penstock {

// One device-resident gradient. In a step it is taken, begun and ended part by part, and returned.
class Resident final : public DeviceSide {
 public:
  // `takes` counts the takes of all device-resident gradients of the set.
  Resident(const Stream& inspection, const Stream& stream, uint64_t& takes, uint64_t bytes,
           Event written, Event returned)
      : DeviceSide(std::move(returned)),
        inspection_(inspection),
        stream_(stream),
        takes_(takes),
        bytes_(bytes),
        written_(std::move(written)) {}

  Status take(void* storage, void* stream) override;
  // Without storage, memory of its own replaces the storage; it is allocated on first use.
  Status take_zeros(void* storage) override;
  void* work_place() const override { return storage_; }

  // ---- [engine] ----
  // Before a part is inspected, the inspection stream waits until the values are written. Waiting
  // for a gradient that was taken later from the same stream covers this gradient too.
  bool is_written() const { return taken_at_ != 0; }
  bool is_covered_by(const Resident& later) const {
    return taken_from_ == later.taken_from_ && taken_at_ <= later.taken_at_;
  }
  Status wait_until_written() const { return written_.hold_back(inspection_.handle()); }
  // Fills the part with zeros if the gradient is zero.
  Status begin(uint64_t first_byte, uint64_t bytes) const;
  // All work that writes a result to a part is queued.
  Status end() { return returned_.record(stream_.handle()); }

 private:
  const Stream& inspection_;
  const Stream& stream_;
  uint64_t& takes_;
  const uint64_t bytes_;
  Event written_;
  // In this step:
  std::byte* storage_ = nullptr;
  bool is_zero_ = false;
  void* taken_from_ = nullptr;  // the producer's stream
  uint64_t taken_at_ = 0;       // position among all takes; 0: the gradient is not being written
  DeviceMemory substitute_;     // empty until a step has no storage
};

// The device-resident gradients of a set. Everything is allocated in make, except memory that
// replaces missing storage.
class Residents {
 public:
  // Makes one gradient for each number of bytes. OUT_OF_MEMORY, DEVICE_ERROR. [control]
  static Result<std::unique_ptr<Residents>> make(const Device& device,
                                                 std::span<const uint64_t> bytes);

  const Stream& stream() const { return stream_; }
  const Stream& inspection() const { return inspection_; }
  const Device& device() const { return stream_.device(); }
  Resident& resident(size_t index) { return residents_[index]; }
  NumberMemory numbers;  // for buckets of the set
  // Like Staging::drain, for all work queued on the streams. [control]
  Status drain(uint64_t limit_us) const {
    PENSTOCK_TRY(inspection_.wait_at_most(limit_us));
    return stream_.wait_at_most(limit_us);
  }

 private:
  Residents(Stream inspection, Stream stream)
      : numbers(stream.device()), inspection_(std::move(inspection)), stream_(std::move(stream)) {}

  const Stream inspection_, stream_;
  uint64_t takes_ = 0;
  std::deque<Resident> residents_;  // must be destroyed before their streams
};

}  // namespace penstock

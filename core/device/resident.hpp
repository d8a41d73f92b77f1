// Gradients that are worked on where they lie: plugins queue their work on a stream of the
// engine's, and of the gradient nothing is copied but what they send and receive.
//
//   producer's stream    ... writes the storage | written
//   engine's stream          waits for written | looks, encodes, payloads out ... in, decodes |
//   returned application's stream                                                  waits for
//   returned | ...
//
// All residents of a set lie on one device and share the stream: what one step queues is done
// before the next one begins, so that what lies in device memory needs no other order.
#pragma once

#include "core/device/device_side.hpp"

#include <deque>
#include <memory>
#include <span>

namespace penstock {

// A gradient's. In a step: taken, begun and ended piece by piece, returned.
class Resident final : public DeviceSide {
 public:
  Resident(const Stream& stream, uint64_t bytes, Event written, Event returned)
      : DeviceSide(std::move(returned)),
        stream_(stream),
        bytes_(bytes),
        written_(std::move(written)) {}

  Status take(void* storage, void* stream) override;
  // Where there is no storage, memory of its own stands in; it is taken when that first happens.
  Status take_zeros(void* storage) override;
  void* work_place() const override { return storage_; }

  // ---- [engine] ----
  // What is queued on the stream from now on finds the values of a part.
  Status begin(uint64_t first_byte, uint64_t bytes) const;
  // All that leaves a result in a part is queued.
  Status end() { return returned_.record(stream_.handle()); }

 private:
  const Stream& stream_;
  const uint64_t bytes_;
  Event written_;
  std::byte* storage_ = nullptr;  // in this step
  bool is_zero_ = false;
  DeviceMemory stand_in_;  // without data until a step has no storage
};

// Those of a set. All but what stands in is made when it is made.
class Residents {
 public:
  // One for each number of bytes. OUT_OF_MEMORY, DEVICE_ERROR. [control]
  static Result<std::unique_ptr<Residents>> make(const Device& device,
                                                 std::span<const uint64_t> bytes);

  const Stream& stream() const { return stream_; }
  const Device& device() const { return stream_.device(); }
  Resident& resident(size_t index) { return residents_[index]; }
  // As Staging::drain, of all that was queued on the stream. [control]
  Status drain(uint64_t limit_us) const { return stream_.wait_at_most(limit_us); }

 private:
  explicit Residents(Stream stream) : stream_(std::move(stream)) {}

  const Stream stream_;
  std::deque<Resident> residents_;  // end before their stream
};

}  // namespace penstock

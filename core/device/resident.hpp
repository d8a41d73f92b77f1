// Gradients that are worked on where they lie: plugins queue their work on a stream of the
// engine's, and of the gradient nothing is copied but what they send and receive.
//
//   producer's stream     ... writes the storage | written
//   engine's, for looks       waits for written | looks
//   engine's                      encodes, payloads out ... in, decodes | returned
//   application's stream                                      waits for returned | ...
//
// All residents of a set lie on one device and share the engine's two streams. A look waits for its
// gradient, and so does nothing else: who is asked for what it has found queues the rest when it
// has come, and what is behind a later gradient holds up no earlier one. On the other stream what
// one step queues is done before the next one begins, so that what lies in device memory needs no
// other order.
#pragma once

#include "core/device/device_side.hpp"
#include "core/device/number_memory.hpp"

#include <deque>
#include <memory>
#include <span>

namespace penstock {

// A gradient's. In a step: taken, begun and ended piece by piece, returned.
class Resident final : public DeviceSide {
 public:
  // `takes` counts those of all residents of the set.
  Resident(const Stream& looks, const Stream& stream, uint64_t& takes, uint64_t bytes,
           Event written, Event returned)
      : DeviceSide(std::move(returned)),
        looks_(looks),
        stream_(stream),
        takes_(takes),
        bytes_(bytes),
        written_(std::move(written)) {}

  Status take(void* storage, void* stream) override;
  // Where there is no storage, memory of its own stands in; it is taken when that first happens.
  Status take_zeros(void* storage) override;
  void* work_place() const override { return storage_; }

  // ---- [engine] ----
  // Before a part is looked at: the stream for looks waits for whoever writes the values, or for
  // one that was taken later from the same stream, which stands for this one too.
  bool is_written() const { return taken_at_ != 0; }
  bool is_covered_by(const Resident& later) const {
    return taken_from_ == later.taken_from_ && taken_at_ <= later.taken_at_;
  }
  Status wait_until_written() const { return written_.hold_back(looks_.handle()); }
  // The part is zeros where the gradient is.
  Status begin(uint64_t first_byte, uint64_t bytes) const;
  // All that leaves a result in a part is queued.
  Status end() { return returned_.record(stream_.handle()); }

 private:
  const Stream& looks_;
  const Stream& stream_;
  uint64_t& takes_;
  const uint64_t bytes_;
  Event written_;
  // In this step:
  std::byte* storage_ = nullptr;
  bool is_zero_ = false;
  void* taken_from_ = nullptr;  // a stream
  uint64_t taken_at_ = 0;       // among all takes; 0: nobody writes it
  DeviceMemory stand_in_;       // without data until a step has no storage
};

// Those of a set. All but what stands in is made when it is made.
class Residents {
 public:
  // One for each number of bytes. OUT_OF_MEMORY, DEVICE_ERROR. [control]
  static Result<std::unique_ptr<Residents>> make(const Device& device,
                                                 std::span<const uint64_t> bytes);

  const Stream& stream() const { return stream_; }
  const Stream& looks() const { return looks_; }
  const Device& device() const { return stream_.device(); }
  Resident& resident(size_t index) { return residents_[index]; }
  NumberMemory numbers;  // for buckets of the set
  // As Staging::drain, of all that was queued on the streams. [control]
  Status drain(uint64_t limit_us) const {
    PENSTOCK_TRY(looks_.wait_at_most(limit_us));
    return stream_.wait_at_most(limit_us);
  }

 private:
  Residents(Stream looks, Stream stream)
      : numbers(stream.device()), looks_(std::move(looks)), stream_(std::move(stream)) {}

  const Stream looks_, stream_;
  uint64_t takes_ = 0;
  std::deque<Resident> residents_;  // end before their streams
};

}  // namespace penstock

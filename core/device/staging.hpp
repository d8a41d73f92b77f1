// The way through host memory: what lies on devices has a mirror in pinned memory, on which all
// work is done, and copies there and back that nobody waits for.
//
//   producer's stream   ... writes the storage | written
//   copies in                       waits for written and for the last copy back | copy | arrived
//   host                                                           works on the mirror
//   copies out                                                                      copy | returned
//
// A copy in waits for the mirror's last copy back, so a step may begin while the results of the one
// before are still on their way.
#pragma once

#include "core/device/device_side.hpp"

#include <deque>
#include <memory>
#include <span>
#include <vector>

namespace penstock {

// Both directions of one device: copies in one direction run in the order in which they were
// queued.
struct CopyStreams {
  Device device;
  Stream in, out;
  Event written;  // of the copy being queued
  PinnedMemory memory;
  uint64_t given_bytes = 0;  // of it, that mirrors have

  uint64_t n_taken = 0;  // copies in that were queued
  // [engine] What it knows of them without asking again: the first so many have arrived; in look
  // `look` number `missing_from` was still missing.
  uint64_t arrived_through = 0, missing_from = 0, look = 0;
};

// A gradient's. In a step: taken, arrived, given, returned.
class Mirror final : public DeviceSide {
 public:
  Mirror(CopyStreams& streams, std::byte* host, uint64_t bytes, Event arrived, Event returned)
      : DeviceSide(std::move(returned)),
        streams_(streams),
        host_(host),
        bytes_(bytes),
        arrived_(std::move(arrived)) {}

  const Device& device() const { return streams_.device; }
  std::byte* host() const { return host_; }
  uint64_t bytes() const { return bytes_; }

  // Queues the copy of `storage`.
  Status take(void* storage, void* stream) override;
  // The host writes the zeros once has_arrived says that it may.
  Status take_zeros(void* storage) override;
  void* work_place() const override { return host_; }

  // ---- [engine] ----
  // Whether the host may use the mirror. `look`: calls of one look, numbered from 1, ask the device
  // about as few copies as they can.
  Status has_arrived(uint64_t look, bool& arrived);
  uint64_t arrived_us() const { return arrived_us_; }  // when that was first seen in this step
  bool is_zero() const { return is_zero_; }
  // Queues the copy of a part of the mirror to where the gradient was taken from.
  Status give(uint64_t first_byte, uint64_t bytes);

 private:
  Status queue_arrival();

  CopyStreams& streams_;
  std::byte* const host_;
  const uint64_t bytes_;
  Event arrived_;
  std::byte* storage_ = nullptr;  // in this step
  bool is_zero_ = false;
  uint64_t number_ = 0;  // of its copy among those of the device
  uint64_t arrived_us_ = 0;
};

// The mirrors of a set. All its memory is taken when it is made.
class Staging {
 public:
  struct Wanted {
    Device device;
    uint64_t bytes = 0;
  };
  // One mirror for each. OUT_OF_MEMORY, DEVICE_ERROR. [control]
  static Result<std::unique_ptr<Staging>> make(std::span<const Wanted> wanted);

  Mirror& mirror(size_t index) { return mirrors_[index]; }
  uint64_t bytes() const;  // of all mirrors
  // Success once no copy is under way any more. Otherwise some may be for ever, and nothing of this
  // may be freed: DEADLINE_EXCEEDED after `limit_us`; DEVICE_ERROR where the device is lost.
  // [control]
  Status drain(uint64_t limit_us);

 private:
  Staging() = default;
  Status add_device(const Device& device, std::span<const Wanted> wanted);
  CopyStreams* on(const Device& device);

  std::deque<CopyStreams> streams_;  // of each device
  std::deque<Mirror> mirrors_;       // end before their streams and memory
};

}  // namespace penstock

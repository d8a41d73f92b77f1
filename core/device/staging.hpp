// Staging through host memory: a gradient on a device has a staging buffer in pinned host memory.
// All work is done on this buffer, and the copies there and back run asynchronously.
//
//   producer's stream   ... writes the storage | written
//   copies in                       waits for written and for the last copy back | copy | arrived
//   host                                                           works on the staging buffer
//   copies out                                                                      copy | returned
//
// A copy in waits for the staging buffer's last copy back, so a step may begin while results of the
// previous step are still being copied.
#pragma once

#include "core/device/device_side.hpp"

#include <deque>
#include <memory>
#include <span>
#include <vector>

namespace penstock {

// Both directions of one device. Copies in one direction run in the order in which they were
// queued.
struct CopyStreams {
  Device device;
  Stream in, out;
  Event written;  // for the copy that is being queued
  PinnedMemory memory;
  uint64_t given_bytes = 0;  // bytes of `memory` that staging buffers use

  uint64_t n_taken = 0;  // number of queued copies in
  // [engine] Cached answers: copies up to `arrived_through` have arrived; in polling pass `pass`,
  // copy `missing_from` had not arrived.
  uint64_t arrived_through = 0, missing_from = 0, pass = 0;
};

// The staging buffer of one gradient. In a step it is taken, arrived, given and returned.
class StagingBuffer final : public DeviceSide {
 public:
  StagingBuffer(CopyStreams& streams, std::byte* host, uint64_t bytes, Event arrived,
                Event returned)
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
  // The host writes the zeros when has_arrived allows it.
  Status take_zeros(void* storage) override;
  void* work_place() const override { return host_; }

  // ---- [engine] ----
  // Whether the host may use the staging buffer. `pass`: number of the polling pass, from 1; calls
  // in one pass query the device about as few copies as possible.
  Status has_arrived(uint64_t pass, bool& arrived);
  // The time at which the arrival was first seen in this step.
  uint64_t arrived_us() const { return arrived_us_; }
  bool is_zero() const { return is_zero_; }
  // Queues the copy of a part of the staging buffer back to the gradient's storage.
  Status give(uint64_t first_byte, uint64_t bytes);

 private:
  Status queue_arrival();

  CopyStreams& streams_;
  std::byte* const host_;
  const uint64_t bytes_;
  Event arrived_;
  std::byte* storage_ = nullptr;  // storage of this step
  bool is_zero_ = false;
  uint64_t number_ = 0;  // number of its copy among the copies of the device
  uint64_t arrived_us_ = 0;
};

// The staging buffers of a set. All memory is allocated in make.
class Staging {
 public:
  struct Wanted {
    Device device;
    uint64_t bytes = 0;
  };
  // Makes one staging buffer for each entry. OUT_OF_MEMORY, DEVICE_ERROR. [control]
  static Result<std::unique_ptr<Staging>> make(std::span<const Wanted> wanted);

  StagingBuffer& staging_buffer(size_t index) { return staging_buffers_[index]; }
  uint64_t bytes() const;  // of all staging buffers
  // Success when no copy is under way. Otherwise a copy may never end and nothing of this object
  // may be freed: DEADLINE_EXCEEDED after `limit_us`; DEVICE_ERROR if the device is lost. [control]
  Status drain(uint64_t limit_us);

 private:
  Staging() = default;
  Status add_device(const Device& device, std::span<const Wanted> wanted);
  CopyStreams* on(const Device& device);

  std::deque<CopyStreams> streams_;  // one per device
  // Must be destroyed before their streams and memory.
  std::deque<StagingBuffer> staging_buffers_;
};

}  // namespace penstock

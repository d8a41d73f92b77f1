// The memory of a state tensor: host memory, or the device on which its gradient is
// device-resident.
#pragma once

#include "core/base/buffer.hpp"
#include "core/device/device.hpp"
#include "core/tensor/place.hpp"

#include <optional>
#include <span>

namespace penstock {

// Zeroed when it is made. On a device, work is queued on the stream of the users of the memory;
// copies to and from the host wait. [control]
class StateMemory {
 public:
  // Empty if the machine cannot allocate so much memory.
  static std::optional<StateMemory> try_make_on_host(uint64_t bytes);
  // `stream` must outlive it. OUT_OF_MEMORY, DEVICE_ERROR.
  static Result<StateMemory> make_on_device(uint64_t bytes, const Stream& stream);

  uint64_t bytes() const { return bytes_; }
  // The address at its place: the host must not read a device address.
  std::byte* data() const {
    return stream_ == nullptr ? on_host_.data() : static_cast<std::byte*>(on_device_.data());
  }
  bool is_on_host() const { return stream_ == nullptr; }
  Place place() const {
    if (is_on_host()) return {};
    return {PENSTOCK_DEVICE_CUDA, stream_->device().id()};
  }

  Status zero();
  // Copies `bytes` from `offset` on from another memory of equal size and place; on a device the
  // copy is queued.
  Status copy_from(const StateMemory& other, uint64_t offset, uint64_t bytes);
  // Copies all bytes to host memory, or from it.
  Status read(std::span<std::byte> target) const;
  Status write(std::span<const std::byte> source);

 private:
  StateMemory() = default;
  // Calls copy(address in pinned memory, offset, bytes) for each part in turn.
  template <typename Copy>
  Status in_parts(const Copy& copy) const;

  uint64_t bytes_ = 0;
  Buffer on_host_;
  const Stream* stream_ = nullptr;
  DeviceMemory on_device_;
};

}  // namespace penstock

// Where the numbers of a state tensor lie: in host memory, or on the device where its gradient is
// worked on.
#pragma once

#include "core/base/buffer.hpp"
#include "core/device/device.hpp"
#include "core/tensor/place.hpp"

#include <optional>
#include <span>

namespace penstock {

// Zeroed when it is made. On a device everything is queued on the stream of those who use it;
// copies to the host and from it wait. [control]
class StateMemory {
 public:
  // Nothing where this machine does not give that much.
  static std::optional<StateMemory> try_make_on_host(uint64_t bytes);
  // `stream` outlives it. OUT_OF_MEMORY, DEVICE_ERROR.
  static Result<StateMemory> make_on_device(uint64_t bytes, const Stream& stream);

  uint64_t bytes() const { return bytes_; }
  // Of the place: on a device no host may read there.
  std::byte* data() const {
    return stream_ == nullptr ? on_host_.data() : static_cast<std::byte*>(on_device_.data());
  }
  bool is_on_host() const { return stream_ == nullptr; }
  Place place() const {
    if (is_on_host()) return {};
    return {PENSTOCK_DEVICE_CUDA, stream_->device().id()};
  }

  Status zero();
  // `bytes` from `offset` on, of another one of the same size and place; on a device queued.
  Status copy_from(const StateMemory& other, uint64_t offset, uint64_t bytes);
  // All bytes, to host memory and from it.
  Status read(std::span<std::byte> target) const;
  Status write(std::span<const std::byte> source);

 private:
  StateMemory() = default;
  // Calls copy(place in pinned memory, offset, bytes) for one part after the other.
  template <typename Copy>
  Status in_parts(const Copy& copy) const;

  uint64_t bytes_ = 0;
  Buffer on_host_;
  const Stream* stream_ = nullptr;
  DeviceMemory on_device_;
};

}  // namespace penstock

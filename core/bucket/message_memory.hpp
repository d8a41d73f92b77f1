// What a message is sent from, or received into. Where items that are worked on on a device take
// part, it is pinned, and has a twin there: as large, everything at the same offset. A message that
// goes from device to device has the twin alone, which the host may not touch.
#pragma once

#include "core/base/buffer.hpp"
#include "core/device/device.hpp"

namespace penstock {

class MessageMemory {
 public:
  MessageMemory() = default;
  MessageMemory(Buffer pageable)  // NOLINT: on purpose
      : bytes_(pageable.bytes()), pageable_(std::move(pageable)) {}
  // [control]
  static Result<MessageMemory> make_with_twin(const Device& device, uint64_t bytes) {
    MessageMemory made;
    made.bytes_ = bytes;
    PENSTOCK_ASSIGN(made.pinned_, PinnedMemory::make(device, bytes));
    PENSTOCK_ASSIGN(made.twin_, DeviceMemory::make(device, bytes));
    std::memset(made.data(), 0, bytes);
    return made;
  }

  static Result<MessageMemory> make_on_device(const Device& device, uint64_t bytes) {
    MessageMemory made;
    made.bytes_ = bytes;
    PENSTOCK_ASSIGN(made.twin_, DeviceMemory::make(device, bytes));
    return made;
  }

  // Where messages begin: in host memory, unless there is none of it.
  std::byte* data() const {
    if (is_on_device_alone()) return static_cast<std::byte*>(twin_.data());
    return pinned_.data() != nullptr ? pinned_.data() : pageable_.data();
  }
  bool is_on_device_alone() const { return twin_.data() != nullptr && pinned_.data() == nullptr; }
  uint64_t bytes() const { return bytes_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data());
  }

  // What lies at `here` of it, on the device; and what of the device lies there, here.
  std::byte* on_device(const void* here) const {
    return static_cast<std::byte*>(twin_.data()) + (static_cast<const std::byte*>(here) - data());
  }
  std::byte* on_host(const void* there) const {
    return pinned_.data() +
           (static_cast<const std::byte*>(there) - static_cast<std::byte*>(twin_.data()));
  }

 private:
  uint64_t bytes_ = 0;
  Buffer pageable_;
  PinnedMemory pinned_;
  DeviceMemory twin_;
};

}  // namespace penstock

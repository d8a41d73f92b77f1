#include "core/state/state_memory.hpp"

#include <algorithm>
#include <cstring>

namespace penstock {
namespace {

constexpr uint64_t kPartBytes = 8 << 20;         // of pinned memory, allocated for each copy
constexpr uint64_t kLongestCopyUs = 60'000'000;  // of a part; a device that needs longer hangs

}  // namespace

std::optional<StateMemory> StateMemory::try_make_on_host(uint64_t bytes) {
  std::optional<Buffer> buffer = Buffer::try_make(bytes);
  if (!buffer) return std::nullopt;
  StateMemory made;
  made.bytes_ = bytes;
  made.on_host_ = std::move(*buffer);
  return made;
}

Result<StateMemory> StateMemory::make_on_device(uint64_t bytes, const Stream& stream) {
  StateMemory made;
  made.bytes_ = bytes;
  made.stream_ = &stream;
  PENSTOCK_ASSIGN(made.on_device_, DeviceMemory::make(stream.device(), bytes));
  PENSTOCK_TRY(made.zero());
  return made;
}

Status StateMemory::zero() {
  if (!is_on_host()) return stream_->clear(on_device_.data(), bytes_);
  if (bytes_ != 0) std::memset(on_host_.data(), 0, bytes_);
  return {};
}

Status StateMemory::copy_from(const StateMemory& other, uint64_t offset, uint64_t bytes) {
  if (bytes == 0) return {};
  if (!is_on_host()) return stream_->copy_on_device(data() + offset, other.data() + offset, bytes);
  std::memcpy(data() + offset, other.data() + offset, bytes);
  return {};
}

template <typename Copy>
Status StateMemory::in_parts(const Copy& copy) const {
  if (bytes_ == 0) return {};
  const uint64_t most = std::min(bytes_, kPartBytes);
  PENSTOCK_ASSIGN(const PinnedMemory pinned, PinnedMemory::make(stream_->device(), most));
  for (uint64_t offset = 0; offset < bytes_; offset += most)
    PENSTOCK_TRY(copy(pinned.data(), offset, std::min(most, bytes_ - offset)));
  return {};
}

Status StateMemory::read(std::span<std::byte> target) const {
  if (is_on_host()) {
    if (bytes_ != 0) std::memcpy(target.data(), on_host_.data(), bytes_);
    return {};
  }
  return in_parts([&](std::byte* pinned, uint64_t offset, uint64_t bytes) -> Status {
    PENSTOCK_TRY(stream_->copy_to_host(pinned, data() + offset, bytes));
    PENSTOCK_TRY(stream_->wait_at_most(kLongestCopyUs));
    std::memcpy(target.data() + offset, pinned, bytes);
    return {};
  });
}

Status StateMemory::write(std::span<const std::byte> source) {
  if (is_on_host()) {
    if (bytes_ != 0) std::memcpy(on_host_.data(), source.data(), bytes_);
    return {};
  }
  return in_parts([&](std::byte* pinned, uint64_t offset, uint64_t bytes) -> Status {
    std::memcpy(pinned, source.data() + offset, bytes);
    PENSTOCK_TRY(stream_->copy_to_device(data() + offset, pinned, bytes));
    return stream_->wait_at_most(kLongestCopyUs);
  });
}

}  // namespace penstock

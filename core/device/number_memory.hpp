// Memory for numbers that a device computes and the host must read: a few bytes for each of many
// buckets, on the device and in pinned host memory. Places are cut from common blocks, because a
// driver call for each would take longer than everything else in making a plan.
#pragma once

#include "core/device/device.hpp"

#include <memory>

namespace penstock {

class NumberMemory {
 public:
  // A place in both memories. It keeps its block alive; the block is freed only when no place uses
  // it.
  class Place {
   public:
    Place() = default;
    void* there() const { return static_cast<std::byte*>(block_->there.data()) + offset_; }
    void* here() const { return block_->here.data() + offset_; }

   private:
    friend class NumberMemory;
    struct Block {
      DeviceMemory there;
      PinnedMemory here;
      uint64_t bytes = 0;
    };
    std::shared_ptr<const Block> block_;
    uint64_t offset_ = 0;
  };

  explicit NumberMemory(const Device& device) : device_(device) {}
  // Aligned to 256 bytes. OUT_OF_MEMORY, DEVICE_ERROR. [control]
  Result<Place> take(uint64_t bytes);

 private:
  const Device device_;
  Place next_;  // the first free byte in the newest block
};

}  // namespace penstock

// Memory for the numbers that a device finds and the host has to know: a few bytes for each of many
// buckets, on the device and, pinned, here. They are cut from common blocks, for a call to the
// driver for each would take longer than all else of a plan.
#pragma once

#include "core/device/device.hpp"

#include <memory>

namespace penstock {

class NumberMemory {
 public:
  // Of both; keeps the block that it lies in, which nobody else of a set may give back before.
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
  // At a multiple of 256 bytes. OUT_OF_MEMORY, DEVICE_ERROR. [control]
  Result<Place> take(uint64_t bytes);

 private:
  const Device device_;
  Place next_;  // where the block of the last one is free
};

}  // namespace penstock

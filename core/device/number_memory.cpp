#include "core/device/number_memory.hpp"

#include <algorithm>

namespace penstock {
namespace {

constexpr uint64_t kNumberBlockBytes = 64 * 1024;
constexpr uint64_t kNumberAlignment = 256;  // like memory of the device's runtime

}  // namespace

Result<NumberMemory::Place> NumberMemory::take(uint64_t bytes) {
  if (next_.block_ == nullptr || bytes > next_.block_->bytes - next_.offset_) {
    auto block = std::make_shared<Place::Block>();
    block->bytes = std::max(bytes, kNumberBlockBytes);
    PENSTOCK_ASSIGN(block->there, DeviceMemory::make(device_, block->bytes));
    PENSTOCK_ASSIGN(block->here, PinnedMemory::make(device_, block->bytes));
    next_.block_ = std::move(block);
    next_.offset_ = 0;
  }
  Place taken = next_;
  next_.offset_ += std::min((bytes + kNumberAlignment - 1) / kNumberAlignment * kNumberAlignment,
                            next_.block_->bytes - next_.offset_);
  return taken;
}

}  // namespace penstock

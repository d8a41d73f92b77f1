// Memory in which pieces are compressed, or from which messages are sent and into which they are
// received. A place of work (work_place.hpp) makes it. Memory of the host may have a twin on a
// device: a block of equal size with all data at equal offsets. Memory that lies on the device
// alone is its own twin, and the host must not touch it.
#pragma once

#include "core/base/buffer.hpp"

#include <cstddef>
#include <memory>

namespace penstock {

class WorkMemory {
 public:
  WorkMemory() = default;
  WorkMemory(Buffer held)  // NOLINT: on purpose
      : bytes_(held.bytes()),
        data_(held.data()),
        holds_(std::make_shared<Buffer>(std::move(held))) {}
  // `holds` frees the memory when its last copy is destroyed.
  WorkMemory(uint64_t bytes, std::byte* data, std::byte* twin, std::shared_ptr<const void> holds)
      : bytes_(bytes), data_(data), twin_(twin), holds_(std::move(holds)) {}

  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  bool is_its_twin() const { return data_ != nullptr && twin_ == data_; }
  // Converts an address in this memory to an address in the twin (null if there is no twin), and
  // back.
  std::byte* twin_of(const void* here) const {
    return twin_ == nullptr ? nullptr : twin_ + (static_cast<const std::byte*>(here) - data_);
  }
  std::byte* of_twin(const void* there) const {
    return data_ + (static_cast<const std::byte*>(there) - twin_);
  }

 private:
  uint64_t bytes_ = 0;
  std::byte* data_ = nullptr;
  std::byte* twin_ = nullptr;
  std::shared_ptr<const void> holds_;
};

}  // namespace penstock

// Memory that lives as long as a plan: aligned to 64 bytes, zeroed, in huge pages where it is
// large.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace penstock {

class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(uint64_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    const bool large = bytes >= kHugePage;
    const uint64_t alignment = large ? kHugePage : 64;
    const uint64_t rounded = (bytes + alignment - 1) / alignment * alignment;
    data_ = static_cast<std::byte*>(std::aligned_alloc(alignment, rounded));
    if (data_ == nullptr) throw std::bad_alloc();
    if (large) (void)madvise(data_, rounded, MADV_HUGEPAGE);  // a hint; refusal costs speed only
    std::memset(data_, 0, rounded);
  }
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Buffer() { std::free(data_); }

  std::byte* data() const { return data_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  uint64_t bytes() const { return bytes_; }

 private:
  static constexpr uint64_t kHugePage = 2u << 20;
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace penstock

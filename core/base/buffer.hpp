// Memory that lives as long as a plan: aligned to 64 bytes, zeroed; large memory in huge pages.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

namespace penstock {

class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(uint64_t bytes) {
    if (!take(bytes)) throw std::bad_alloc();
  }
  // Empty if the machine cannot allocate so much memory. For sizes that a plugin requested: the
  // caller can name the plugin in its error.
  static std::optional<Buffer> try_make(uint64_t bytes) {
    Buffer buffer;
    if (!buffer.take(bytes)) return std::nullopt;
    return buffer;
  }
  // Like try_make(), with undefined contents: unused pages are never allocated.
  static std::optional<Buffer> try_make_unwritten(uint64_t bytes) {
    Buffer buffer;
    if (!buffer.take(bytes, false)) return std::nullopt;
    return buffer;
  }
  static Buffer unwritten(uint64_t bytes) {
    Buffer buffer;
    if (!buffer.take(bytes, false)) throw std::bad_alloc();
    return buffer;
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

  bool take(uint64_t bytes, bool zeroes = true) {
    if (bytes == 0) return true;
    const bool large = bytes >= kHugePage;
    const uint64_t alignment = large ? kHugePage : 64;
    if (bytes > ~uint64_t{0} - alignment) return false;
    const uint64_t rounded = (bytes + alignment - 1) / alignment * alignment;
    data_ = static_cast<std::byte*>(std::aligned_alloc(alignment, rounded));
    if (data_ == nullptr) return false;
    if (large) (void)madvise(data_, rounded, MADV_HUGEPAGE);  // a hint; refusal costs speed only
    if (zeroes) std::memset(data_, 0, rounded);
    bytes_ = bytes;
    return true;
  }

  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace penstock

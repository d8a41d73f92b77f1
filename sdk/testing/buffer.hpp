// Memory with guards on both sides, to find writes out of bounds without a sanitizer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace penstock::test {

// `size` elements at an address that is a multiple of 16 but not of 64 (or of 64 on request), so
// that code fails if it assumes a larger alignment than promised.
template <typename T>
class Guarded {
 public:
  explicit Guarded(uint64_t size = 0, bool aligned_to_64 = false)
      : size_(size), bytes_(size * sizeof(T) + 4 * kGuard, kPattern) {
    const uintptr_t base = reinterpret_cast<uintptr_t>(bytes_.data()) + kGuard;
    offset_ = kGuard + (64 - base % 64) + (aligned_to_64 ? 0 : 16);
    std::fill_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset_), size * sizeof(T), 0);
  }
  Guarded(Guarded&&) = default;
  Guarded& operator=(Guarded&&) = default;

  T* data() { return reinterpret_cast<T*>(bytes_.data() + offset_); }
  const T* data() const { return reinterpret_cast<const T*>(bytes_.data() + offset_); }
  uint64_t size() const { return size_; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  T& operator[](uint64_t i) { return data()[i]; }
  const T& operator[](uint64_t i) const { return data()[i]; }
  std::vector<T> copy() const { return {begin(), end()}; }

  // Fills the contents, not the guards, with values on which a callee must not rely. Fills only the
  // front of large buffers; the rest still holds data of the calls before.
  void scribble() { std::memset(data(), 0xA5, std::min(size_ * sizeof(T), kScribbled)); }
  bool intact() const {
    const auto untouched = [](unsigned char byte) { return byte == kPattern; };
    const auto begin = bytes_.begin() + static_cast<std::ptrdiff_t>(offset_);
    const auto end = begin + static_cast<std::ptrdiff_t>(size_ * sizeof(T));
    return std::all_of(bytes_.begin(), begin, untouched) &&
           std::all_of(end, bytes_.end(), untouched);
  }

 private:
  static constexpr uint64_t kGuard = 64;
  static constexpr uint64_t kScribbled = 16 * 1024;
  static constexpr unsigned char kPattern = 0xC3;
  uint64_t size_;
  std::vector<unsigned char> bytes_;
  uint64_t offset_ = 0;
};

// memcmp, for which empty ranges may have null pointers.
inline bool same_bytes(const void* one, const void* other, uint64_t size) {
  return size == 0 || std::memcmp(one, other, size) == 0;
}

}  // namespace penstock::test

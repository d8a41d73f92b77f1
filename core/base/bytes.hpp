// Writes and reads small binary records: plans, saved state. Fixed-width, in the machine's byte
// order, which is little-endian.
#pragma once

#include "core/base/status.hpp"

#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace penstock {

class ByteWriter {
 public:
  explicit ByteWriter(std::string& out) : out_(out) {}
  template <typename T>
  void put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    out_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(std::string_view value) {
    put<uint64_t>(value.size());
    out_.append(value);
  }

 private:
  std::string& out_;
};

// Reads the output of ByteWriter. After the first read past the end every later read fails too;
// check ok() at the end.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}
  template <typename T>
  T get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    if (!take(sizeof value)) return value;
    std::memcpy(&value, bytes_.data() + position_ - sizeof value, sizeof value);
    return value;
  }
  std::string_view text() {
    const auto size = get<uint64_t>();
    if (!take(size)) return {};
    return bytes_.substr(position_ - size, size);
  }
  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && position_ == bytes_.size(); }
  uint64_t left() const { return bytes_.size() - position_; }

 private:
  bool take(uint64_t size) {
    if (!ok_ || size > bytes_.size() - position_) {
      ok_ = false;
      return false;
    }
    position_ += size;
    return true;
  }
  std::string_view bytes_;
  uint64_t position_ = 0;
  bool ok_ = true;
};

}  // namespace penstock

// Finds the ones in a string of bits, and writes a string with ones at given places. Bit i is bit
// i mod 8 of byte i / 8.
#pragma once

#include <kernels/code_path.hpp>

#include <bit>
#include <cstdint>
#include <cstring>

namespace penstock::wire {

// The unread part of a string: `word` holds the bits from `first` on that are loaded but not taken;
// the bytes from `next` to `end` follow it.
struct BitString {
  const unsigned char* next = nullptr;
  const unsigned char* end = nullptr;
  uint64_t word = 0;
  uint64_t first = 0;

  BitString() = default;
  BitString(const unsigned char* begin, uint64_t bytes) : next(begin), end(begin + bytes) {
    load();
  }

  // Loads the next word; to be called when `word` has no more ones. False at the end of the string.
  bool advance() {
    if (next == end) return false;
    first += 64;
    load();
    return true;
  }

  bool has_ones() const {
    for (const unsigned char* byte = next; byte != end; ++byte)
      if (*byte != 0) return true;
    return word != 0;
  }

 private:
  void load() {
    const auto left = static_cast<uint64_t>(end - next);
    const uint64_t bytes = left < sizeof word ? left : sizeof word;
    word = 0;
    if (bytes == sizeof word)
      std::memcpy(&word, next, sizeof word);
    else if (bytes != 0)
      std::memcpy(&word, next, bytes);
    next += bytes;
  }
};

// take_ones writes up to so many undefined entries behind the requested entries.
inline constexpr uint64_t kOnesPad = 64;

// Takes the places of the next `count` ones, counted from the string's first bit. Returns the
// number of ones that it found. [any]
template <typename Position>
uint64_t take_ones(BitString& bits, uint64_t count, Position* places,
                   kernels::CodePath path) noexcept;

// Writes a string of bits, from its first bit on, to `target`.
class OnesWriter {
 public:
  explicit OnesWriter(unsigned char* target) : target_(target) {}

  // Appends the lowest `count` <= 64 bits of `bits`, whose higher bits must be zero.
  void append_bits(uint64_t bits, unsigned count) {
    word_ |= bits << next_;
    next_ += count;
    if (next_ < 64) return;
    store();
    word_ = next_ == 0 ? 0 : bits >> (count - next_);
  }

  // Appends `zeros` zeros, then a one.
  void append_one(uint64_t zeros) {
    for (; zeros >= 64; zeros -= 64) append_bits(0, 64);
    append_bits(uint64_t{1} << zeros, static_cast<unsigned>(zeros) + 1);
  }

  // Writes the bytes that are not complete yet. Must be called at the end.
  void finish() {
    for (unsigned done = 0; done < next_; done += 8)
      *target_++ = static_cast<unsigned char>(word_ >> done);
  }

 private:
  void store() {
    std::memcpy(target_, &word_, sizeof word_);
    target_ += sizeof word_;
    next_ -= 64;
  }

  unsigned char* target_;
  uint64_t word_ = 0;
  unsigned next_ = 0;  // bit of the word
};

}  // namespace penstock::wire

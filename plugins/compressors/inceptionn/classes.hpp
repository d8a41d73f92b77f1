// The size classes of INCEPTIONN, and the streams in which their elements travel. With y the
// magnitude in true units, b the bits of the bound and m = floor(b / 2):
//   tag 3: y >= 1       the float as it is
//   tag 2: y >= 2^-m    sign and 15 bits: y * 2^15, cut
//   tag 1: y >= 2^-b    sign and 7 bits: y * 2^(m + 7), cut
//   tag 0: the rest     nothing
// The error of cutting is less than 2^-15 and 2^-(m + 7), both at most 2^-b for b <= 14.
#pragma once

#include <kernels/code_path.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace penstock::inceptionn {

inline constexpr unsigned kMostBoundBits = 14;
inline constexpr uint64_t kTile = 1024;  // elements processed at a time; a multiple of 64

struct Rule {
  explicit Rule(unsigned bound_bits)
      : bound(std::ldexp(1.0f, -static_cast<int>(bound_bits))),
        middle(std::ldexp(1.0f, -static_cast<int>(bound_bits / 2))),
        steps_of_byte(std::ldexp(128.0f, static_cast<int>(bound_bits / 2))) {}
  float bound;
  float middle;
  float steps_of_byte;  // steps per unit
  static constexpr float kStepsOfHalf = 32768;
};

// The number of elements of each class.
struct Counts {
  uint64_t floats = 0;
  uint64_t halves = 0;
  uint64_t bytes_of_one = 0;
  uint64_t bytes() const { return 4 * floats + 2 * halves + bytes_of_one; }
  Counts& operator+=(const Counts& other) {
    floats += other.floats;
    halves += other.halves;
    bytes_of_one += other.bytes_of_one;
    return *this;
  }
};

// Counts the classes of `numel` packed tags; bits behind the last tag are ignored. [any]
Counts count(const uint64_t* words, uint64_t numel) noexcept;

// tags[i] = class of x[i] / unit. [any]
void classify(const float* x, uint64_t numel, const Rule& rule, float unit, uint8_t* tags,
              kernels::CodePath path) noexcept;

// The places at which the next elements of each class are read or written: first all floats, then
// all elements of 16 bits, then all elements of 8 bits.
template <typename Byte>
struct Streams {
  Streams(Byte* begin, const Counts& counts)
      : floats(begin),
        halves(begin + 4 * counts.floats),
        bytes(begin + 4 * counts.floats + 2 * counts.halves) {}
  Byte* floats;
  Byte* halves;
  Byte* bytes;
};

// The coded elements of up to kTile elements. Each array has room for one element more, so that
// loops can write and read it without testing the class first.
class Tile {
 public:
  void encode(const float* x, const uint8_t* tags, uint64_t numel, const Rule& rule, float unit,
              kernels::CodePath path) noexcept;
  void decode(const uint8_t* tags, uint64_t numel, const Rule& rule, float unit, float* x,
              kernels::CodePath path) noexcept;
  void store(Streams<uint8_t>& to) const noexcept;
  // `counts` must be the counts of this tile, and `from` must have so many elements left.
  void load(Streams<const uint8_t>& from, const Counts& counts) noexcept;

 private:
  Counts counts_;
  float floats_[kTile + 1];
  uint16_t halves_[kTile + 1];
  uint8_t bytes_[kTile + 1];
};

}  // namespace penstock::inceptionn

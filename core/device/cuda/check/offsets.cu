#include "core/device/cuda/check/check.hpp"

#include <cstring>
#include <initializer_list>
#include <iterator>

namespace penstock::device_check {
namespace {

// Kernels read 16 bytes at once if these are aligned, so arrays begin at each of these offsets.
constexpr uint64_t kOffsets = 16;
constexpr uint64_t kMost = 5000;
constexpr uint64_t kRoom = kMost + 2 * kOffsets;
constexpr uint64_t kCounts[] = {0, 1, 3, 8, 17, 1001, kMost};

struct Type {
  uint32_t dtype;
  uint32_t nan;
  uint32_t shift;  // of widened bits; for float16 the exponent changes too
};
constexpr Type kFloats{PENSTOCK_FLOAT32, 0x7fffffff, 0}, kHalves{PENSTOCK_FLOAT16, 0x7fff, 0},
    kBfloat16s{PENSTOCK_BFLOAT16, 0xffff, 16};

// Values with NaN around them. A kernel that reads too far finds a NaN, and a kernel that reads too
// little misses a NaN at an end.
template <typename Bits>
class Placed {
 public:
  Placed(int32_t device, const Type& type)
      : type_(type),
        streams_(device),
        bits_(device, kRoom),
        floats_(device, kRoom),
        there_(device, kRoom),
        wide_(device, kRoom),
        look_(device),
        device_(device) {}

  void check(uint64_t offset, uint64_t count) {
    for (uint64_t i = 0; i < kRoom; ++i) bits_[i] = static_cast<Bits>(type_.nan);
    for (uint64_t i = 0; i < count; ++i) bits_[offset + i] = number(i);
    REQUIRE(!find(offset, offset, count));
    check_widened(offset, count);
    for (const uint64_t to : {uint64_t{0}, (offset + 1) % kOffsets, (offset + 4) % kOffsets}) {
      REQUIRE(!find(offset, to, count));
      check_widened(to, count);
    }
    for (const uint64_t at : {uint64_t{0}, count / 2, count - 1}) {
      if (at >= count) continue;
      bits_[offset + at] = static_cast<Bits>(type_.nan);
      REQUIRE(find(offset, offset, count));
      bits_[offset + at] = number(at);
    }
  }

 private:
  // Finite in every type, and small enough that float16's exponent is not full.
  static Bits number(uint64_t i) { return static_cast<Bits>(i * 7 % 0x7b00); }
  void* stream() const { return streams_.first; }

  bool find(uint64_t from, uint64_t to, uint64_t count) {
    bits_.send(there_.data, kRoom, stream());
    SUCCEED(clear, device_, wide_.data, kRoom * sizeof(float), stream());
    return look_({there_.data + from, wide_.data + to, count, nullptr, type_.dtype, 0}, stream()) ==
           1;
  }
  // The widened values, with zeros around them.
  void check_widened(uint64_t to, uint64_t count) {
    floats_.bring(wide_.data, kRoom, stream());
    for (uint64_t i = 0; i < kRoom; ++i) {
      uint32_t bits = 0;
      std::memcpy(&bits, &floats_[i], sizeof bits);
      const bool inside = i >= to && i < to + count;
      if (type_.dtype == PENSTOCK_FLOAT16)  // halves.cu checks the values themselves
        REQUIRE(inside ? (bits != 0) == (number(i - to) != 0) : bits == 0);
      else
        REQUIRE(bits == (inside ? uint32_t{number(i - to)} << type_.shift : 0));
    }
  }

  Type type_;
  Streams streams_;
  OnHost<Bits> bits_;
  OnHost<float> floats_;
  OnDevice<Bits> there_;
  OnDevice<float> wide_;
  Look look_;
  int32_t device_;
};

template <typename Bits>
void check_copies_of(int32_t device) {
  const Streams streams(device);
  OnHost<Bits> values(device, kRoom), got(device, kRoom);
  const OnDevice<Bits> from(device, kRoom), to(device, kRoom);
  for (uint64_t i = 0; i < kRoom; ++i) values[i] = static_cast<Bits>(i * 31 + 1);
  values.send(from.data, kRoom, streams.first);
  for (uint64_t source = 0; source < kOffsets; ++source)
    for (uint64_t target = 0; target < kOffsets; ++target) {
      const uint64_t count = kCounts[(source + 5 * target) % std::size(kCounts)];
      const penstock_device_copy copy{from.data + source, to.data + target, count, sizeof(Bits), 0};
      SUCCEED(clear, device, to.data, kRoom * sizeof(Bits), streams.first);
      SUCCEED(copy_many, device, &copy, 1, streams.first);
      got.bring(to.data, kRoom, streams.first);
      for (uint64_t i = 0; i < kRoom; ++i) {
        const bool inside = i >= target && i < target + count;
        REQUIRE(got[i] == (inside ? values[source + i - target] : Bits{0}));
      }
    }
}

// More elements than all blocks of an array load at once.
void check_a_large_array(int32_t device) {
  constexpr uint64_t kLarge = (uint64_t{1} << 23) + 5001;
  const Streams streams(device);
  OnHost<uint32_t> values(device, kLarge), got(device, kLarge);
  const OnDevice<uint32_t> from(device, kLarge), to(device, kLarge);
  Look look(device);
  for (uint64_t i = 0; i < kLarge; ++i) values[i] = static_cast<uint32_t>(i);
  const penstock_device_copy copy{from.data + 1, to.data + 1, kLarge - 1, sizeof(uint32_t), 0};
  for (const uint64_t bad : {uint64_t{0}, kLarge - 5000, kLarge - 1}) {
    const uint32_t before = values[bad];
    values[bad] = 0x7fffffff;
    values.send(from.data, kLarge, streams.first);
    REQUIRE(look({from.data + 1, nullptr, kLarge - 1, nullptr, PENSTOCK_FLOAT32, 0},
                 streams.first) == (bad > 0 ? 1u : 0u));
    SUCCEED(clear, device, to.data, kLarge * sizeof(uint32_t), streams.first);
    SUCCEED(copy_many, device, &copy, 1, streams.first);
    got.bring(to.data, kLarge, streams.first);
    REQUIRE(got[0] == 0);
    REQUIRE(std::memcmp(&got[1], &values[1], (kLarge - 1) * sizeof(uint32_t)) == 0);
    values[bad] = before;
  }
}

}  // namespace

// For every begin and end of an array, exactly its elements are read and written.
void check_offsets(int32_t device) {
  Placed<uint32_t> floats(device, kFloats);
  Placed<uint16_t> bfloat16s(device, kBfloat16s), halves(device, kHalves);
  for (uint64_t offset = 0; offset < kOffsets; ++offset)
    for (const uint64_t count : kCounts) {
      floats.check(offset, count);
      bfloat16s.check(offset, count);
      halves.check(offset, count);
    }
  check_copies_of<uint16_t>(device);
  check_copies_of<uint32_t>(device);
  check_a_large_array(device);
}

}  // namespace penstock::device_check

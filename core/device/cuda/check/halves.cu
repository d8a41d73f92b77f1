#include "core/device/cuda/check/check.hpp"

#include <initializer_list>

namespace penstock::device_check {
namespace {

constexpr uint64_t kAll = 1 << 16;

// A type of 16 bits, by its masks.
struct Half {
  uint32_t dtype;
  uint16_t exponent;  // all its bits set: infinity
  uint16_t quiet;     // a NaN's bit that rounding sets
  uint16_t one;

  bool is_nan(uint64_t bits) const { return (bits & 0x7fffu) > exponent; }
  uint16_t rounded(uint64_t bits) const {
    return static_cast<uint16_t>(is_nan(bits) ? bits | quiet : bits);
  }
};

constexpr Half kFloat16{PENSTOCK_FLOAT16, 0x7c00, 0x0200, 0x3c00};
constexpr Half kBfloat16{PENSTOCK_BFLOAT16, 0x7f80, 0x0040, 0x3f80};

// Every value of a type, on the device and as a float.
class Values {
 public:
  Values(int32_t device, const Half& half)
      : device_(device),
        half_(half),
        streams_(device),
        bits_(device, kAll),
        floats_(device, kAll),
        halves_(device, kAll),
        moved_(device, kAll + 1),
        wide_(device, kAll),
        look_(device) {
    for (uint64_t i = 0; i < kAll; ++i) bits_[i] = static_cast<uint16_t>(i);
    bits_.send(halves_.data, kAll, stream());
  }

  // The result of the inspection, which also widens the values.
  uint32_t find(uint64_t first, uint64_t count) {
    return look_({halves_.data + first, wide_.data + first, count, nullptr, half_.dtype, 0},
                 stream());
  }
  void check_one() {
    floats_.bring(wide_.data, kAll, stream());
    REQUIRE(floats_[half_.one] == 1);
  }
  // Rounds back, and copies to an address that is one element later, which no wider copy could do.
  void check_rounded() {
    SUCCEED(clear, device_, halves_.data, kAll * sizeof(uint16_t), stream());
    SUCCEED(narrow, device_, wide_.data, halves_.data, kAll, half_.dtype, stream());
    const penstock_device_copy copy{halves_.data, moved_.data + 1, kAll, sizeof(uint16_t), 0};
    SUCCEED(copy_many, device_, &copy, 1, stream());
    bits_.bring(moved_.data + 1, kAll, stream());
    for (uint64_t i = 0; i < kAll; ++i) REQUIRE(bits_[i] == half_.rounded(i));
  }
  void check_negated() {
    SUCCEED(scale, device_, halves_.data, kAll, half_.dtype, -1.0f, stream());
    bits_.bring(halves_.data, kAll, stream());
    // Arithmetic on a GPU gives one NaN for every NaN.
    for (uint64_t i = 0; i < kAll; ++i)
      REQUIRE(half_.is_nan(i) ? half_.is_nan(bits_[i]) : bits_[i] == (i ^ 0x8000u));
  }
  void check_filled() {
    SUCCEED(fill_nan, device_, halves_.data, kAll, half_.dtype, stream());
    bits_.bring(halves_.data, kAll, stream());
    for (uint64_t i = 0; i < kAll; ++i) REQUIRE(bits_[i] == (half_.exponent | half_.quiet));
  }

 private:
  void* stream() const { return streams_.first; }

  int32_t device_;
  Half half_;
  Streams streams_;
  OnHost<uint16_t> bits_;
  OnHost<float> floats_;
  OnDevice<uint16_t> halves_, moved_;
  OnDevice<float> wide_;
  Look look_;
};

}  // namespace

// Every float of 16 bits, widened and rounded back, with products.
void check_16_bits(int32_t device) {
  for (const Half& half : {kFloat16, kBfloat16}) {
    Values values(device, half);
    REQUIRE(values.find(0, half.exponent) == 0);
    for (const uint32_t sign : {0u, 0x8000u})  // infinity, and then NaNs with all payloads
      for (const uint32_t payload : {0u, 1u, uint32_t{half.quiet}, 0x7fffu ^ half.exponent})
        REQUIRE(values.find(sign | half.exponent | payload, 1) == 1);
    REQUIRE(values.find(0x8000, half.exponent) == 0);
    REQUIRE(values.find(0, kAll) == 1);
    values.check_one();
    values.check_rounded();
    values.check_negated();
    values.check_filled();
  }
}

}  // namespace penstock::device_check

#include "core/device/cuda/check/check.hpp"

#include <bit>
#include <cmath>
#include <initializer_list>

namespace penstock::device_check {
namespace {

// An array of floats, and a float behind it that no kernel may write.
class Elements {
 public:
  Elements(int32_t device, uint64_t count)
      : device_(device),
        count_(count),
        streams_(device),
        values_(device, count + 1),
        there_(device, count + 1),
        look_(device) {}

  float operator[](uint64_t i) { return values_[i]; }

  // Whether the inspection finds a non-finite value if `last` is the last value.
  bool find(float last) {
    for (uint64_t i = 0; i <= count_; ++i) values_[i] = static_cast<float>(i) * 0.5f;
    if (count_ > 0) values_[count_ - 1] = last;
    values_[count_] = NAN;  // behind the end
    values_.send(there_.data, count_ + 1, stream());
    const uint32_t found = look_({there_.data, nullptr, count_, nullptr, kFloat32, 0}, stream());
    REQUIRE(found <= 1);
    return found == 1;
  }
  void scale(float factor) {
    SUCCEED(scale, device_, there_.data, count_, kFloat32, factor, stream());
    read_back();
  }
  void fill_nan() {
    SUCCEED(fill_nan, device_, there_.data, count_, kFloat32, stream());
    read_back();
  }
  void clear() {
    SUCCEED(clear, device_, there_.data, count_ * sizeof(float), stream());
    read_back();
  }

 private:
  void* stream() const { return streams_.first; }
  void read_back() {
    values_.bring(there_.data, count_ + 1, stream());
    REQUIRE(std::isnan(values_[count_]));
  }

  int32_t device_;
  uint64_t count_;
  Streams streams_;
  OnHost<float> values_;
  OnDevice<float> there_;
  Look look_;
};

}  // namespace

// For arrays of every size: a non-finite value is found in every position, and writes end at the
// end of the array.
void check_elements(int32_t device) {
  for (const uint64_t n : kSizes) {
    Elements elements(device, n);
    REQUIRE(elements.find(INFINITY) == (n > 0));
    for (const uint32_t nan : {0x7fc00000u, 0x7fffffffu, 0xffc00000u, 0x7f800001u})
      REQUIRE(elements.find(std::bit_cast<float>(nan)) == (n > 0));
    REQUIRE(!elements.find(3e38f));
    elements.scale(1.0f / 3);
    for (uint64_t i = 0; i < n; ++i) {
      const float before = i + 1 == n ? 3e38f : static_cast<float>(i) * 0.5f;
      REQUIRE(elements[i] == before * (1.0f / 3));
    }
    elements.fill_nan();
    for (uint64_t i = 0; i < n; ++i) REQUIRE(std::isnan(elements[i]));
    elements.clear();
    for (uint64_t i = 0; i < n; ++i) REQUIRE(elements[i] == 0);
  }
}

}  // namespace penstock::device_check

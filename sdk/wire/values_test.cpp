// Compares coded values with rounding in double, and checks the promises for any scale.
#include <gtest/gtest.h>
#include <testing/data.hpp>
#include <wire/values.hpp>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace penstock::wire::values_test {
namespace {

using kernels::CodePath;
using penstock::test::heavy_tailed;
using Bytes = std::vector<unsigned char>;
using Floats = std::vector<float>;

constexpr uint8_t kNarrow[] = {kFloat16, kBfloat16};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
const std::vector<uint64_t> kSizes{0, 1, 2, 3, 31, 64, 65, 511, 512, 513, 1000, 65537};

std::vector<uint32_t> bits_of(const Floats& values) {
  std::vector<uint32_t> bits(values.size());
  if (!values.empty()) std::memcpy(bits.data(), values.data(), 4 * values.size());
  return bits;
}

Bytes written(uint8_t coding, const Floats& values, CodePath path = kernels::widest_code_path(),
              float* seen = nullptr) {
  Bytes bytes(values_bound(values.size()) + 1, 0xa5);
  const uint64_t size = write_values(coding, values, bytes.data(), path, seen);
  EXPECT_LE(size, values_bound(values.size()));
  EXPECT_EQ(bytes[size], 0xa5) << "more bytes than it says";
  bytes.resize(size);
  return bytes;
}

Floats read(const Bytes& bytes, uint64_t slice = 1 << 20,
            CodePath path = kernels::widest_code_path()) {
  ValuesReader reader(path);
  EXPECT_EQ(reader.open(bytes), "");
  EXPECT_EQ(reader.bytes(), bytes.size());
  Floats values;
  while (reader.left() > 0) {
    Floats part(std::min(slice, reader.left()));
    EXPECT_EQ(reader.take(part), "");
    values.insert(values.end(), part.begin(), part.end());
  }
  return values;
}

// `value` rounded to nearest even with `digits` binary digits, in steps of at least `step`.
double rounded(double value, int digits, double step) {
  if (value == 0) return 0;
  const double unit = std::max(step, std::ldexp(1.0, std::ilogb(value) - digits + 1));
  return std::nearbyint(value / unit) * unit;
}

// The received value of a section's value; the largest magnitude of the section decides the scale.
float plain_narrow(uint8_t coding, float value, float largest) {
  const bool half = coding == kFloat16;
  const int top = std::ilogb(largest) - (half ? 14 : 0);
  const double step = std::ldexp(1.0, half ? -24 : -133);
  double code = rounded(std::ldexp(static_cast<double>(value), -top), half ? 11 : 8, step);
  const double most = std::ldexp(half ? 2 - 0x1p-10 : 2 - 0x1p-7, half ? 14 : 0);
  if (std::ilogb(largest) == 127) code = std::clamp(code, -most, most);
  return static_cast<float>(std::ldexp(code, top));
}

float largest_of(const Floats& values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  return largest;
}

TEST(Values, InSixteenBitsAreRoundedToTheNearest) {
  for (const uint8_t coding : kNarrow)
    for (const uint64_t count : kSizes)
      for (const double scale : {1e-38, 1e-9, 1.0, 1e9, 1e36}) {
        Floats values = heavy_tailed(count, count + 1), expected;
        for (float& value : values) value *= static_cast<float>(scale);
        const float largest = largest_of(values);
        for (const float value : values) expected.push_back(plain_narrow(coding, value, largest));
        const Bytes bytes = written(coding, values);
        ASSERT_EQ(bytes[0], count == 0 ? kFloat32 : coding);
        ASSERT_EQ(read(bytes), expected) << count << " at " << scale;
      }
}

TEST(Values, TimesAPowerOfTwoArriveAsWhatTheyWereTimesIt) {
  for (const uint8_t coding : {kFloat16, kBfloat16, kSign}) {
    const Floats values = heavy_tailed(10001, 1), seen = read(written(coding, values));
    for (const int power : {-80, -40, 40, 80}) {  // 2^40 is about 1e12
      Floats scaled = values, expected = seen;
      for (float& value : scaled) value = std::ldexp(value, power);
      for (float& value : expected) value = std::ldexp(value, power);
      EXPECT_EQ(bits_of(read(written(coding, scaled))), bits_of(expected)) << power;
    }
  }
}

TEST(Values, OfAnyScaleKeepTheirDigits) {
  for (const double scale : {1e-30, 1e-12, 1e-9, 1.0, 1e9, 1e12, 1e30}) {
    Floats values = heavy_tailed(10001, 2);
    for (float& value : values) value *= static_cast<float>(scale);
    const float largest = largest_of(values);
    const Floats half = read(written(kFloat16, values)), brain = read(written(kBfloat16, values));
    for (size_t i = 0; i < values.size(); ++i) {
      // Half a unit in the last of 11 digits, or half the smallest step below the largest value.
      EXPECT_LE(std::fabs(half[i] - values[i]),
                std::max(std::fabs(values[i]) * 0x1p-11f, largest * 0x1p-39f));
      EXPECT_LE(std::fabs(brain[i] - values[i]), std::fabs(values[i]) * 0x1p-8f);
    }
  }
}

TEST(Values, AtTheEndsOfFloat32StayFinite) {
  const float most = std::numeric_limits<float>::max();
  const float least = std::numeric_limits<float>::denorm_min();
  for (const uint8_t coding : kNarrow)
    for (const Floats& values :
         {Floats{most, -most, 1, 0}, Floats{most, 0x1.ffep127f, -0x1.fdp127f},
          Floats{least, -least}, Floats{least, 3 * least, -1000 * least}, Floats{0, 0, -0.0f},
          Floats{0x1p-126f, least}}) {
      Floats expected;
      for (const float value : values)
        expected.push_back(
            largest_of(values) == 0 ? value : plain_narrow(coding, value, largest_of(values)));
      EXPECT_EQ(read(written(coding, values)), expected);
    }
}

TEST(Values, ThatAreNotFiniteArriveAsTheyAre) {
  const float nan = std::bit_cast<float>(0xffc01234u);
  for (const uint8_t coding : {kFloat32, kFloat16, kBfloat16, kSign})
    for (const float odd : {nan, kInfinity, -kInfinity})
      for (const uint64_t at : {0, 500, 999}) {
        Floats values = heavy_tailed(1000, 4);
        values[at] = odd;
        const Bytes bytes = written(coding, values);
        EXPECT_EQ(bytes[0], kFloat32);
        EXPECT_EQ(bits_of(read(bytes)), bits_of(values));
      }
}

TEST(Values, AsSignsArriveAsTheMeansOfTheirSides) {
  for (const uint64_t count : {3, 64, 65, 513, 10001}) {
    Floats values = heavy_tailed(count, 5);
    values[1] = 0;
    values[2] = -0.0f;
    double sums[2] = {0, 0};
    uint64_t counts[2] = {0, 0};
    for (const float value : values) {
      sums[value < 0] += value;
      ++counts[value < 0];
    }
    const Bytes bytes = written(kSign, values);
    ASSERT_EQ(bytes[0], count == 3 ? kSign : kSign);
    const Floats seen = read(bytes);
    for (size_t i = 0; i < count; ++i) {
      const bool negative = values[i] < 0;
      // Another order of summation.
      EXPECT_FLOAT_EQ(seen[i],
                      static_cast<float>(sums[negative] / static_cast<double>(counts[negative])));
    }
  }
}

TEST(Values, AsSignsOfOneSideOnlyHaveAMeanOfNothingForTheOther) {
  EXPECT_EQ(read(written(kSign, Floats(100, 3))), Floats(100, 3));
  EXPECT_EQ(read(written(kSign, Floats(100, -3))), Floats(100, -3));
  EXPECT_EQ(read(written(kSign, Floats(100, 0))), Floats(100, 0));
}

TEST(Values, AreWrittenAsFloat32WhereThatIsNotLonger) {
  EXPECT_EQ(written(kSign, {1, -2})[0], kFloat32);  // two means alone take as much
  EXPECT_EQ(written(kSign, {1, -2, 3})[0], kSign);
  EXPECT_EQ(written(kFloat16, {1})[0], kFloat16);
  for (const uint8_t coding : {kFloat32, kFloat16, kBfloat16, kSign})
    EXPECT_EQ(written(coding, {}), (Bytes{0, 0, 0, 0, 0}));
}

TEST(Values, AreTheSameOnEveryCodePathAndInEverySlice) {
  for (const uint8_t coding : {kFloat32, kFloat16, kBfloat16, kSign})
    for (const uint64_t count : kSizes) {
      const Floats values = heavy_tailed(count, 6);
      const Bytes bytes = written(coding, values, CodePath::kPortable);
      const Floats seen = read(bytes, 1 << 20, CodePath::kPortable);
      for (const CodePath path : kernels::kAllCodePaths) {
        if (!kernels::code_path_supported(path)) continue;
        Floats given(count), in_place = values;
        EXPECT_EQ(written(coding, values, path, given.data()), bytes);
        EXPECT_EQ(written(coding, in_place, path, in_place.data()), bytes);
        EXPECT_EQ(given, seen);
        EXPECT_EQ(in_place, seen);
        EXPECT_EQ(read(bytes, kSlice, path), seen);
        EXPECT_EQ(read(bytes, 3 * kSlice, path), seen);
      }
    }
}

TEST(Values, LieInBytesAsThePageSays) {
  EXPECT_EQ(written(kFloat32, {1, -2}), (Bytes{0, 0, 0, 2, 8, 0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0}));
  // 3 = 1.5 * 2^1 is sent as 1.5 * 2^14, which is 0x7600 in float16; the section's power is -13.
  EXPECT_EQ(written(kFloat16, {3, -1}), (Bytes{1, 0xf3, 0xff, 2, 4, 0, 0x76, 0, 0xf0}));
  EXPECT_EQ(written(kBfloat16, {3, -1}), (Bytes{2, 1, 0, 2, 4, 0xc0, 0x3f, 0, 0xbf}));
  EXPECT_EQ(written(kSign, {1, -2, 3}),
            (Bytes{3, 0, 0, 3, 9, 0, 0, 0, 0x40, 0, 0, 0, 0xc0, 0b010}));
}

TEST(Values, OfWrongSectionsAreRefusedWithASentence) {
  struct Wrong {
    Bytes bytes;
    std::string says;
  };
  const std::vector<Wrong> all{
      {{0, 0, 0}, "has a header in which a number does not end where it should"},
      {{4, 0, 0, 1, 1, 0}, "is of the unknown coding 4, expected one below 4"},
      {{1, 0, 0, 2, 2, 0, 0}, "has 2 bytes for 2 values of coding 1"},
      {{0, 1, 0, 1, 4, 0, 0, 0, 0}, "has the parameter 1, expected 0"},
      {{1, 0, 1, 1, 2, 0, 0}, "has values times 2^256, which no float32 needs"},
      {{1, 0, 0, 1, 2, 0, 0x7c}, "has a value in 16 bits that is not finite"},
      {{2, 127, 0, 1, 2, 0x80, 0x40}, "has a value in 16 bits that is not finite"},
      {{3, 0, 0, 1, 9, 0, 0, 0, 0, 0, 0, 0x80, 0x7f, 0},
       "has the means 0 and inf, expected finite ones"},
  };
  for (const Wrong& wrong : all) {
    Floats room(2);
    uint64_t count = 0;
    EXPECT_EQ(read_values(wrong.bytes, room, count, kernels::widest_code_path()), wrong.says);
  }
  uint64_t count = 0;
  EXPECT_EQ(read_values(written(kFloat32, {1, 2}), {}, count, CodePath::kPortable),
            "has 2 values, at most 0 are legal");
}

}  // namespace
}  // namespace penstock::wire::values_test

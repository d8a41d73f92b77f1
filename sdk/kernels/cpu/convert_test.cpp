// Conversions of 16-bit floats against values computed with doubles.
#include <gtest/gtest.h>
#include <kernels/convert.hpp>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace penstock::kernels::convert_test {
namespace {

// The value that the bits of a half give, from the definition.
double half_value(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const double mantissa = bits & 1023;
  const double magnitude = exponent == 31  ? (mantissa != 0 ? std::nan("") : INFINITY)
                           : exponent == 0 ? std::ldexp(mantissa, -24)
                                           : std::ldexp(1024 + mantissa, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

// Nearest even by definition: the mantissa unit of the value's binade, rounded by nearbyint.
double nearest(float value, int mantissa_bits, int least_exponent, double overflow) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int exponent = std::max(std::ilogb(value), least_exponent);
  const double unit = std::ldexp(1.0, exponent - mantissa_bits);
  const double rounded = std::nearbyint(value / unit) * unit;
  return std::abs(rounded) >= overflow ? std::copysign(INFINITY, value) : rounded;
}

std::vector<float> awkward_floats() {
  std::vector<float> all{0.0f,      -0.0f,        1.0f,        65504.0f,  65519.996f,
                         65520.0f,  -1e30f,       0x1p-24f,    0x1p-25f,  0x1.000002p-25f,
                         0x1p-14f,  3e38f,        0x1.8p-24f,  0x1p-149f, INFINITY,
                         -INFINITY, 0x1.ffcp-15f, 0x1.fffp-15f};
  std::mt19937 random(7);
  for (int i = 0; i < 200'000; ++i)
    all.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  for (int i = 0; i < 200'000; ++i)  // the range in which halves are not all infinite or zero
    all.push_back(std::ldexp(static_cast<float>(random()) / 0x1p31f - 1.0f,
                             static_cast<int>(random() % 44) - 26));
  return all;
}

TEST(Convert, AllHalvesHaveTheirValueAndComeBack) {
  std::vector<uint16_t> halves(65536);
  for (uint32_t i = 0; i < 65536; ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> floats(65536);
  halves_to_floats(halves.data(), floats.data(), halves.size());
  std::vector<uint16_t> back(65536);
  floats_to_halves(floats.data(), back.data(), floats.size());
  for (uint32_t i = 0; i < 65536; ++i) {
    const bool nan = (i & 0x7fff) > 0x7c00;
    // The functions for one value use portable code: it must give the bits of the bulk code, also
    // for NaN.
    EXPECT_EQ(std::bit_cast<uint32_t>(half_to_float(halves[i])),
              std::bit_cast<uint32_t>(floats[i]));
    EXPECT_EQ(float_to_half(floats[i]), back[i]);
    EXPECT_EQ(back[i], nan ? (i | 0x200) : i);
    if (nan)
      EXPECT_TRUE(std::isnan(floats[i]));
    else
      EXPECT_EQ(floats[i], half_value(halves[i]));
    if (HasFailure()) FAIL() << "at half " << i;
  }
}

TEST(Convert, FloatsRoundToTheNearestEvenHalf) {
  const auto floats = awkward_floats();
  std::vector<uint16_t> halves(floats.size());
  floats_to_halves(floats.data(), halves.data(), floats.size());
  for (size_t i = 0; i < floats.size(); ++i) {
    ASSERT_EQ(float_to_half(floats[i]), halves[i]) << floats[i];
    if (std::isnan(floats[i])) {
      ASSERT_TRUE(std::isnan(half_value(halves[i])));
    } else {
      ASSERT_EQ(half_value(halves[i]), nearest(floats[i], 10, -14, 65520.0)) << floats[i];
      ASSERT_EQ(halves[i] >> 15, std::signbit(floats[i]));
    }
  }
}

TEST(Convert, FloatsRoundToTheNearestEvenBfloat16) {
  auto floats = awkward_floats();
  floats.push_back(std::bit_cast<float>(0x7f800001u));  // a NaN whose payload lies below bfloat16
  floats.push_back(std::bit_cast<float>(0xffffffffu));
  std::vector<uint16_t> rounded(floats.size());
  floats_to_bfloat16s(floats.data(), rounded.data(), floats.size());
  std::vector<float> back(floats.size());
  bfloat16s_to_floats(rounded.data(), back.data(), floats.size());
  for (size_t i = 0; i < floats.size(); ++i) {
    ASSERT_EQ(float_to_bfloat16(floats[i]), rounded[i]);
    ASSERT_EQ(std::isnan(back[i]), std::isnan(floats[i]));
    if (!std::isnan(floats[i])) {
      ASSERT_EQ(back[i], nearest(floats[i], 7, -126, 0x1p128));
    }
  }
}

// A share is exact in the type, the sum of all ranks' shares does not overflow, and the next larger
// number would overflow.
TEST(Convert, AShareIsTheLargestNumberWhoseSumOverRanksIsFinite) {
  for (const uint32_t ranks : {1u, 2u, 3u, 5u, 7u, 64u, 1000u, 4096u}) {
    const float half = half_share(ranks), wide = bfloat16_share(ranks);
    EXPECT_EQ(half_to_float(float_to_half(half)), half) << ranks;
    EXPECT_EQ(bfloat16_to_float(float_to_bfloat16(wide)), wide) << ranks;
    EXPECT_LE(double{half} * ranks, 65504);
    EXPECT_LE(double{wide} * ranks, 0x1.fep127);
    const auto next_half = static_cast<uint16_t>(float_to_half(half) + 1);
    const auto next_wide = static_cast<uint16_t>(float_to_bfloat16(wide) + 1);
    EXPECT_GT(double{half_to_float(next_half)} * ranks, 65504);
    EXPECT_GT(double{bfloat16_to_float(next_wide)} * ranks, 0x1.fep127);
  }
}

TEST(Convert, OddSizesAndTailsAreConvertedAndNothingBehindThem) {
  for (uint64_t count : {0, 1, 7, 8, 9, 15, 17, 1001}) {
    std::vector<float> floats(count + 1, 1.5f);
    std::vector<uint16_t> halves(count + 1, 0xabcd);
    floats_to_halves(floats.data(), halves.data(), count);
    for (uint64_t i = 0; i < count; ++i) ASSERT_EQ(halves[i], 0x3e00);
    EXPECT_EQ(halves[count], 0xabcd);
    std::vector<float> back(count + 1, -7.0f);
    halves_to_floats(halves.data(), back.data(), count);
    for (uint64_t i = 0; i < count; ++i) ASSERT_EQ(back[i], 1.5f);
    EXPECT_EQ(back[count], -7.0f);
  }
}

}  // namespace
}  // namespace penstock::kernels::convert_test

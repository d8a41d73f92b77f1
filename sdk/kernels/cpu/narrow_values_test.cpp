// Narrow values against the definitions of the types, one value at a time.
#include <gtest/gtest.h>

#include <cmath>
#include <kernels/narrow_values.hpp>
#include <limits>
#include <support/half.hpp>
#include <testing/data.hpp>
#include <vector>

namespace penstock::kernels::narrow_values_test {
namespace {

constexpr float kMost = std::numeric_limits<float>::max();

struct Narrowed {
  std::vector<unsigned char> bytes;
  std::vector<float> rounded, widened;
};

Narrowed narrow(ValueType type, const std::vector<float>& values, float scale) {
  Narrowed result{std::vector<unsigned char>(4 * values.size()), values,
                  std::vector<float>(values.size())};
  narrow_values(type, result.rounded.data(), values.size(), result.bytes.data(), scale);
  widen_values(type, result.bytes.data(), values.size(), result.widened.data(), scale);
  return result;
}

float largest_of(const std::vector<float>& values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  return largest;
}

std::vector<float> awkward_values() {
  return {0.0f,     -0.0f,   1.0f,    -1.5f,  65504.0f, 65519.0f, 65520.0f, -70000.0f,
          1e6f,     -1e30f,  kMost,   -kMost, 6e-8f,    -3e-8f,   1e-45f,   -1e-40f,
          1.0f / 3, 2049.0f, 2051.0f, 257.0f, 259.0f,   1e-20f,   127.5f,   -0.5f};
}

TEST(SparseValues, HalvesAreTheNearestThatIsFinite) {
  for (const auto& distribution : test::distributions()) {
    std::vector<float> values = distribution.draw(1000, 1);
    for (const float value : awkward_values()) values.push_back(value);
    for (const bool brain : {false, true}) {
      const ValueType type = brain ? ValueType::kBfloat16 : ValueType::kFloat16;
      const float most = brain ? test::from_bfloat16(0x7f7f) : 65504.0f;
      const Narrowed found = narrow(type, values, 1);
      for (size_t i = 0; i < values.size(); ++i) {
        float expected = brain ? test::from_bfloat16(test::to_bfloat16(values[i]))
                               : test::from_float16(test::to_float16(values[i]));
        if (std::isinf(expected)) expected = std::copysign(most, values[i]);
        ASSERT_EQ(found.rounded[i], expected) << values[i];
        ASSERT_EQ(found.widened[i], expected) << values[i];
      }
    }
  }
}

TEST(SparseValues, EightBitsAreTheNearestMultipleOfTheScale) {
  for (const auto& distribution : test::distributions()) {
    const std::vector<float> values = distribution.draw(1000, 2);
    const float scale = value_scale(ValueType::kInt8, largest_of(values));
    EXPECT_EQ(scale, largest_of(values) / 127);
    const Narrowed found = narrow(ValueType::kInt8, values, scale);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto code = static_cast<int8_t>(found.bytes[i]);
      ASSERT_EQ(found.rounded[i], static_cast<float>(code) * scale);
      ASSERT_EQ(found.widened[i], found.rounded[i]);
      ASSERT_GE(code, -127);
      // Half a step, and the rounding of the quotient; a scale that is itself subnormal is coarse.
      if (scale > 1e-35f) {
        ASSERT_LE(std::fabs(values[i] - found.rounded[i]), 0.5001f * scale);
      }
    }
  }
}

TEST(SparseValues, EightBitsRoundTiesToEven) {
  const std::vector<float> values{0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 126.5f, 125.5f, 127.0f, 200.0f};
  const Narrowed found = narrow(ValueType::kInt8, values, 1);
  EXPECT_EQ(found.rounded, (std::vector<float>{0, 2, 2, 0, -2, 126, 126, 127, 127}));
}

TEST(SparseValues, AZeroScaleSendsZeros) {
  EXPECT_EQ(value_scale(ValueType::kInt8, 0), 0.0f);
  EXPECT_EQ(value_scale(ValueType::kInt8, 1e-45f), 0.0f)
      << "the quotient is below the smallest subnormal";
  const Narrowed found = narrow(ValueType::kInt8, {0.0f, -0.0f, 1e-45f}, 0);
  EXPECT_EQ(found.rounded, (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(found.bytes[2], 0);
}

TEST(SparseValues, ScalesOfHugeValuesStayFinite) {
  for (const float largest : {kMost, std::numeric_limits<float>::infinity(), 3.3e38f}) {
    const float scale = value_scale(ValueType::kInt8, largest);
    EXPECT_TRUE(std::isfinite(scale * 127)) << largest;
    const Narrowed found = narrow(ValueType::kInt8, {largest, -largest, std::nanf("")}, scale);
    EXPECT_EQ(found.rounded, (std::vector<float>{127 * scale, -127 * scale, 0}));
  }
}

// ---- float16 with a power of two ----

constexpr ValueType kHalf = ValueType::kFloat16;

TEST(SparseValues, ThePowerOfHalvesPutsTheLargestCodeFrom2To14To2To15) {
  for (int exponent = -112; exponent <= 126; ++exponent)
    for (const float mantissa : {1.0f, 1.5f, 0x1.fffffep0f}) {
      const float largest = std::ldexp(mantissa, exponent);
      const float scale = value_scale(kHalf, largest);
      EXPECT_EQ(scale, std::ldexp(1.0f, exponent - 14));
      EXPECT_TRUE(is_scale(kHalf, scale));
    }
  for (const float small : {0.0f, 1e-45f, 0x1p-126f, 0x1p-113f})
    EXPECT_EQ(value_scale(kHalf, small), 0x1p-126f) << small;
  for (const float large : {0x1p127f, kMost, std::numeric_limits<float>::infinity()})
    EXPECT_EQ(value_scale(kHalf, large), 0x1p112f) << large;
}

TEST(SparseValues, HalvesAreTheNearestCodeTimesThePower) {
  for (const auto& distribution : test::distributions())
    for (const int exponent : {-140, -126, -40, 0, 40, 100}) {
      std::vector<float> values = distribution.draw(500, 4);
      for (float& value : values) value = std::ldexp(value, exponent);
      const float scale = value_scale(kHalf, largest_of(values));
      const Narrowed found = narrow(kHalf, values, scale);
      for (size_t i = 0; i < values.size(); ++i) {
        const auto exact = static_cast<float>(double{values[i]} / double{scale});
        const float code = test::from_float16(test::to_float16(exact));
        ASSERT_EQ(found.rounded[i], code * scale) << values[i] << ", scale " << scale;
        ASSERT_EQ(found.widened[i], found.rounded[i]);
      }
    }
}

TEST(SparseValues, HalvesOfValuesTimesAPowerOfTwoAreTheHalvesTimesThatPower) {
  for (const auto& distribution : test::distributions()) {
    if (distribution.name == "subnormal") continue;  // times 2^-40 these are zeros
    const std::vector<float> values = distribution.draw(500, 5);
    const Narrowed expected = narrow(kHalf, values, value_scale(kHalf, largest_of(values)));
    for (const int exponent : {-40, 40}) {
      std::vector<float> scaled = values;
      for (float& value : scaled) value = std::ldexp(value, exponent);
      const Narrowed found = narrow(kHalf, scaled, value_scale(kHalf, largest_of(scaled)));
      EXPECT_EQ(found.bytes, expected.bytes) << distribution.name << ", 2^" << exponent;
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_EQ(found.widened[i], std::ldexp(expected.widened[i], exponent));
    }
  }
}

TEST(SparseValues, HalvesNextToTheLargestFloatAreCutAndStayFinite) {
  const Narrowed found = narrow(kHalf, {kMost, -kMost, 0x1p127f}, value_scale(kHalf, kMost));
  EXPECT_EQ(found.rounded, (std::vector<float>{0x1.ffcp127f, -0x1.ffcp127f, 0x1p127f}));
}

TEST(SparseValues, OnlyPowersOfTwoThatKeepEveryCodeFiniteAreScalesOfHalves) {
  for (const float good : {0x1p-126f, 0x1p-14f, 1.0f, 0x1p112f})
    EXPECT_TRUE(is_scale(kHalf, good)) << good;
  for (const float bad : {0.0f, -0.0f, -1.0f, 3.0f, 0x1.000002p0f, 0x1p-127f, 1e-45f, 0x1p113f,
                          std::numeric_limits<float>::infinity(), std::nanf("")})
    EXPECT_FALSE(is_scale(kHalf, bad)) << bad;
}

TEST(SparseValues, WhatIsLeftOverIsExact) {
  for (const ValueType type : {ValueType::kFloat16, ValueType::kBfloat16, ValueType::kInt8})
    for (const auto& distribution : test::distributions()) {
      const std::vector<float> values = distribution.draw(1000, 3);
      const Narrowed found = narrow(type, values, value_scale(type, largest_of(values)));
      for (size_t i = 0; i < values.size(); ++i) {
        const float left = values[i] - found.rounded[i];
        ASSERT_EQ(double{left} + double{found.rounded[i]}, double{values[i]})
            << distribution.name << ", type " << static_cast<int>(type);
      }
    }
}

}  // namespace
}  // namespace penstock::kernels::narrow_values_test

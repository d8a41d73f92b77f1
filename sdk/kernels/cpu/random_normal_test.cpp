// The counter-based generator against its formula with the C library's functions.
#include <gtest/gtest.h>
#include <kernels/random_normal.hpp>

#include <cmath>
#include <numbers>
#include <vector>

namespace penstock::kernels::random_normal_test {
namespace {

std::vector<float> normals(uint64_t seed, uint64_t gradient, uint64_t stream, uint64_t count) {
  std::vector<float> values(count);
  random_normal(seed, gradient, stream, 0, count, values.data());
  return values;
}

TEST(RandomNormal, SplitMix64GivesThePublishedSequence) {
  // The first outputs of the reference implementation for seed 1234567.
  constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;
  EXPECT_EQ(splitmix64(1234567), 6457827717110365317u);
  EXPECT_EQ(splitmix64(1234567 + kGolden), 3203168211198807973u);
  EXPECT_EQ(splitmix64(1234567 + 2 * kGolden), 9817491932198370423u);
}

TEST(RandomNormal, FollowsTheFormula) {
  constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;
  const uint64_t seed = 42, gradient = 7, stream = 2, count = 100000;
  const std::vector<float> values = normals(seed, gradient, stream, count);
  const uint64_t base = splitmix64(seed ^ splitmix64(gradient * kGolden + stream));
  uint64_t different = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t bits = splitmix64(base + i * kGolden);
    const double u1 = (static_cast<double>(bits >> 32) + 0.5) / 4294967296.0;
    const double u2 = (static_cast<double>(bits & 0xffffffffu) + 0.5) / 4294967296.0;
    const double exact = std::sqrt(-2.0 * std::log(u1)) * std::cos(2.0 * std::numbers::pi * u2);
    // Half a unit of float, and the error of the angle 2 pi u2 in double near a zero of the cosine.
    ASSERT_NEAR(values[i], exact, 6.1e-8 * std::fabs(exact) + 4e-15) << i;
    different += values[i] != static_cast<float>(exact);
  }
  EXPECT_LE(different, 5u);  // only where the exact value lies between two floats
}

TEST(RandomNormal, HasTheMomentsOfANormalDistribution) {
  const uint64_t count = 200000;
  double sum = 0, squares = 0, fourths = 0;
  for (const float value : normals(3, 1, 1, count)) {
    sum += value;
    squares += double{value} * value;
    fourths += std::pow(double{value}, 4);
  }
  const double n = static_cast<double>(count);  // limits: five standard deviations of each estimate
  EXPECT_NEAR(sum / n, 0.0, 5 * std::sqrt(1 / n));
  EXPECT_NEAR(squares / n, 1.0, 5 * std::sqrt(2 / n));
  EXPECT_NEAR(fourths / n, 3.0, 5 * std::sqrt(96 / n));
}

TEST(RandomNormal, SeedGradientAndStreamEachChangeTheNumbers) {
  const std::vector<float> base = normals(1, 1, kStreamRightFactor, 8);
  EXPECT_NE(base, normals(2, 1, kStreamRightFactor, 8));
  EXPECT_NE(base, normals(1, 2, kStreamRightFactor, 8));
  EXPECT_NE(base, normals(1, 1, kStreamLeftFactor, 8));
  EXPECT_NE(base, normals(1, 1, stream_of_step(kStreamRightFactor, 0), 8));
  EXPECT_NE(normals(1, 1, stream_of_step(kStreamRightFactor, 0), 8),
            normals(1, 1, stream_of_step(kStreamRightFactor, 1), 8));
  EXPECT_EQ(base, normals(1, 1, kStreamRightFactor, 8));
}

TEST(RandomNormal, AnyPartOfAStreamCanBeDrawnAlone) {
  const std::vector<float> whole = normals(5, 9, 1, 100);
  std::vector<float> part(20);
  random_normal(5, 9, 1, 33, 20, part.data());
  EXPECT_EQ(part, std::vector<float>(whole.begin() + 33, whole.begin() + 53));
  random_normal(5, 9, 1, 0, 0, nullptr);  // nothing
}

}  // namespace
}  // namespace penstock::kernels::random_normal_test

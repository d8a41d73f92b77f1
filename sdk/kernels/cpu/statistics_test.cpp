// Statistics and counts against plain loops in long double.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <kernels/select.hpp>
#include <kernels/statistics.hpp>
#include <support/code_paths.hpp>
#include <testing/data.hpp>
#include <vector>

namespace penstock::kernels::statistics_test {
namespace {

const std::vector<uint64_t> kSizes{0, 1, 2, 3, 15, 16, 31, 64, 1000, 4095, 4096, 4097, 65537};

TEST(Statistics, EqualPlainLoops) {
  for (const auto& distribution : test::distributions())
    for (const uint64_t n : kSizes) {
      const std::vector<float> x = distribution.draw(n, 3);
      long double magnitudes = 0, squares = 0, logs = 0;
      uint64_t nonzero = 0;
      float largest = 0;
      for (const float value : x) {
        magnitudes += std::fabs(static_cast<long double>(value));
        squares += static_cast<long double>(value) * value;
        largest = std::max(largest, std::fabs(value));
        if (value == 0) continue;
        logs += std::log(std::fabs(static_cast<long double>(value)));
        ++nonzero;
      }
      for (const CodePath path : test::supported_paths()) {
        const Statistics found = statistics(x.data(), n, {.logs = true}, path);
        SCOPED_TRACE(distribution.name + ", n " + std::to_string(n));
        EXPECT_EQ(found.nonzero, nonzero);
        EXPECT_EQ(found.largest, largest);
        // Doubles of non-negative terms: each of n additions rounds by at most 2^-53 of the sum.
        const auto rounding = static_cast<double>(n) * 0x1p-53;
        EXPECT_NEAR(found.sum_of_magnitudes, double(magnitudes), rounding * double(magnitudes));
        EXPECT_NEAR(found.sum_of_squares, double(squares), rounding * double(squares));
        // Each mantissa is multiplied into a float product: 2^-24 per entry.
        EXPECT_NEAR(found.sum_of_logs, double(logs), 1e-6 + 0x1p-23 * static_cast<double>(n));
        EXPECT_EQ(statistics(x.data(), n, {}, path).sum_of_logs, 0.0);
      }
    }
}

TEST(Statistics, HaveTheSameBitsOnEveryCodePathAndAlignment) {
  const std::vector<float> x = test::heavy_tailed(20003, 9);
  std::vector<float> moved(x.size() + 5);
  const Statistics first = statistics(x.data(), x.size(), {.logs = true}, CodePath::kPortable);
  for (const CodePath path : test::supported_paths())
    for (uint64_t shift = 0; shift < 5; ++shift) {
      std::copy(x.begin(), x.end(), moved.begin() + static_cast<ptrdiff_t>(shift));
      const Statistics found = statistics(moved.data() + shift, x.size(), {.logs = true}, path);
      EXPECT_EQ(found.sum_of_magnitudes, first.sum_of_magnitudes);
      EXPECT_EQ(found.sum_of_squares, first.sum_of_squares);
      EXPECT_EQ(found.sum_of_logs, first.sum_of_logs);
      EXPECT_EQ(found.largest, first.largest);
    }
}

TEST(Statistics, LargeAndSmallMagnitudesNeitherOverflowNorVanish) {
  const std::vector<float> x{3e38f, -3e38f, 1e-45f, -1e-40f, 0.0f, -0.0f};
  for (const CodePath path : test::supported_paths()) {
    const Statistics found = statistics(x.data(), x.size(), {.logs = true}, path);
    EXPECT_EQ(found.nonzero, 4u);
    EXPECT_NEAR(found.sum_of_magnitudes, 6e38, 1e32);
    EXPECT_NEAR(found.sum_of_squares, 1.8e77, 1e71);
    double expected = 0;
    for (int i = 0; i < 4; ++i) expected += std::log(std::fabs(double{x[i]}));
    EXPECT_NEAR(found.sum_of_logs, expected, 1e-5);
  }
}

TEST(Statistics, CountEveryThresholdInTheSamePass) {
  // Few and many thresholds, few and many entries above the lowest, in no order.
  std::vector<std::vector<float>> lists{{}, {1.0f}, {2.0f, 0.5f, 1e9f}, {0.0f, -1.0f, 1e-42f}};
  lists.emplace_back();
  for (int j = 0; j < 16; ++j) lists.back().push_back(4.0f - 0.25f * static_cast<float>(j));
  lists.emplace_back();
  for (int j = 0; j < 33; ++j) lists.back().push_back(0.1f * static_cast<float>((j * 7) % 33));
  lists.push_back({std::nanf(""), 0.75f, 0.25f, 0.5f});
  for (const auto& distribution : test::distributions())
    for (const uint64_t n : kSizes) {
      std::vector<float> x = distribution.draw(n, 5);
      if (n > 100) x[n / 2] = std::nanf("");
      for (const std::vector<float>& thresholds : lists) {
        std::vector<uint64_t> expected(thresholds.size());
        for (size_t j = 0; j < thresholds.size(); ++j)
          for (const float value : x)
            expected[j] += value != 0 && std::fabs(value) >= thresholds[j] ? 1 : 0;
        for (const CodePath path : test::supported_paths()) {
          std::vector<uint64_t> counts(thresholds.size(), 7), alone(thresholds.size(), 7);
          statistics(x.data(), n, {.thresholds = thresholds, .counts = counts.data()}, path);
          count_above(x.data(), n, thresholds, alone.data(), path);
          ASSERT_EQ(counts, expected) << distribution.name << ", n " << n;
          ASSERT_EQ(alone, expected) << distribution.name << ", n " << n;
        }
      }
    }
}

}  // namespace
}  // namespace penstock::kernels::statistics_test

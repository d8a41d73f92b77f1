// Exceedances against plain loops, and quantiles of tails against their laws.
#include <gtest/gtest.h>

#include <cmath>
#include <kernels/exceedances.hpp>
#include <kernels/tail_quantile.hpp>
#include <testing/data.hpp>

namespace penstock::kernels::exceedances_test {
namespace {

TEST(Exceedances, EqualPlainLoopsOnEveryCodePath) {
  for (const test::Distribution& distribution : test::distributions())
    for (const uint64_t n : test::awkward_sizes())
      for (const float threshold : {0.0f, 0.5f, 2.0f}) {
        const std::vector<float> x = distribution.draw(n, 7);
        Exceedances expected;
        for (const float value : x) {
          const float excess = std::fabs(value) - threshold;
          if (!(excess > 0)) continue;
          expected.sum += double{excess};
          expected.squares += double{excess} * double{excess};
          ++expected.count;
        }
        const Exceedances first = exceedances(x.data(), n, threshold, CodePath::kPortable);
        EXPECT_EQ(first.count, expected.count) << distribution.name << " " << n;
        // Additions in another order: n roundings of 2^-53.
        const double slack = static_cast<double>(n) * 0x1p-53;
        EXPECT_NEAR(first.sum, expected.sum, slack * expected.sum);
        EXPECT_NEAR(first.squares, expected.squares, slack * expected.squares);
        for (const CodePath path : kAllCodePaths) {
          if (!code_path_supported(path)) continue;
          const Exceedances found = exceedances(x.data(), n, threshold, path);
          EXPECT_EQ(found.sum, first.sum) << code_path_name(path);
          EXPECT_EQ(found.squares, first.squares) << code_path_name(path);
          EXPECT_EQ(found.count, first.count) << code_path_name(path);
        }
      }
}

TEST(TailQuantile, OfANormalLawIsTheTabulatedOne) {
  EXPECT_NEAR(normal_tail_quantile(0.5), 0, 1e-12);
  EXPECT_NEAR(normal_tail_quantile(0.025), 1.959963984540054, 1e-12);
  EXPECT_NEAR(normal_tail_quantile(0.0005), 3.290526731491926, 1e-11);
  EXPECT_NEAR(normal_tail_quantile(0.9), -1.2815515655446004, 1e-12);
}

TEST(TailQuantile, OfAParetoLawIsTheExponentialOneInTheLimitAndNeverDividesByZero) {
  EXPECT_DOUBLE_EQ(pareto_tail_quantile(2, 4, 0.01), -2 * std::log(0.01));
  EXPECT_NEAR(pareto_tail_quantile(2, 4 * (1 + 1e-5), 0.01), -2 * std::log(0.01), 1e-3);
  EXPECT_EQ(pareto_tail_quantile(3, 0, 0.01), 3);
  EXPECT_EQ(pareto_tail_quantile(0, 0, 0.01), 0);
  // Shape 0.2 (x = 1/0.2 (0.01^-0.2 - 1) for scale 1), which has mean 1.25, variance 1/(0.64 *
  // 0.6).
  EXPECT_NEAR(pareto_tail_quantile(1.25, 1 / 0.384, 0.01), 5 * (std::pow(0.01, -0.2) - 1), 1e-12);
}

TEST(TailQuantile, OfAGammaLawInvertsItsTail) {
  EXPECT_NEAR(log_gamma(0.5), 0.5723649429247001, 1e-12);
  EXPECT_NEAR(log_gamma(1), 0, 1e-12);
  EXPECT_NEAR(log_gamma(30.5), std::log(std::tgamma(30.5)), 1e-11);
  EXPECT_NEAR(gamma_tail_quantile(1, 3, 0.001), -3 * std::log(0.001), 1e-9) << "exponential";
  // Half of chi-square with one degree: the square of a normal number.
  EXPECT_NEAR(gamma_tail_quantile(0.5, 2, 0.05), 1.959963984540054 * 1.959963984540054, 1e-9);
  // Two exponentials: tail (1 + x) exp(-x).
  const double x = gamma_tail_quantile(2, 1, 0.01);
  EXPECT_NEAR((1 + x) * std::exp(-x), 0.01, 1e-12);
}

}  // namespace
}  // namespace penstock::kernels::exceedances_test

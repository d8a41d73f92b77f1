// Sums against long double, and equal bits on every code path and alignment.
#include <gtest/gtest.h>
#include <kernels/norm.hpp>

#include <cmath>
#include <random>
#include <vector>

namespace penstock::kernels::norm_test {
namespace {

std::vector<float> values(uint64_t n) {
  std::mt19937_64 random(n);
  std::normal_distribution<double> gauss;
  std::vector<float> x(n);
  for (float& value : x) value = static_cast<float>(gauss(random) * std::exp(3 * gauss(random)));
  return x;
}

TEST(Norm, IsTheSumToRounding) {
  for (const uint64_t n : {0, 1, 15, 16, 17, 1000, 65537}) {
    const std::vector<float> x = values(n);
    long double squares = 0;
    long double magnitudes = 0;
    for (const float value : x) {
      squares += static_cast<long double>(value) * value;
      magnitudes += std::fabs(static_cast<long double>(value));
    }
    // n / 16 + 4 additions, each off by at most 2^-53 of a partial sum of positive terms.
    const double relative = (static_cast<double>(n) / 16 + 4) * 0x1p-52;
    EXPECT_NEAR(sum_of_squares(x.data(), n, widest_code_path()), static_cast<double>(squares),
                static_cast<double>(squares) * relative);
    EXPECT_NEAR(sum_of_magnitudes(x.data(), n, widest_code_path()), static_cast<double>(magnitudes),
                static_cast<double>(magnitudes) * relative);
  }
}

TEST(Norm, HasTheSameBitsOnEveryPathAndAlignment) {
  for (const uint64_t n : {0, 1, 15, 16, 17, 999, 65537}) {
    const std::vector<float> x = values(n);
    for (const CodePath path : kAllCodePaths) {
      if (!code_path_supported(path)) continue;
      for (uint64_t shift = 0; shift < 3; ++shift) {
        std::vector<float> moved(n + shift);
        for (uint64_t i = 0; i < n; ++i) moved[i + shift] = x[i];
        EXPECT_EQ(sum_of_squares(moved.data() + shift, n, path),
                  sum_of_squares(x.data(), n, CodePath::kPortable));
        EXPECT_EQ(sum_of_magnitudes(moved.data() + shift, n, path),
                  sum_of_magnitudes(x.data(), n, CodePath::kPortable));
      }
    }
  }
}

TEST(Norm, LargeAndSmallFloatsDoNotOverflowOrVanish) {
  const std::vector<float> x{3e38f, -3e38f, 1e-40f};
  EXPECT_GT(sum_of_squares(x.data(), 3, widest_code_path()), 1.7e77);
  const std::vector<float> small(4, 1e-30f);
  EXPECT_NEAR(sum_of_squares(small.data(), 4, widest_code_path()), 4e-60,
              1e-66);  // float(1e-30) is off by 6e-8 relative
}

}  // namespace
}  // namespace penstock::kernels::norm_test

// Factors are drawn from the stream and orthonormal, and no column dies.
#include <gtest/gtest.h>
#include <kernels/factor.hpp>

#include <cmath>
#include <vector>

namespace penstock::kernels::factor_test {
namespace {

using Floats = std::vector<float>;
constexpr FactorSource kSource{1, 2, kStreamRightFactor};

float* aligned(Floats& scratch) {
  const auto address = reinterpret_cast<uintptr_t>(scratch.data());
  return scratch.data() + (64 - address % 64) % 64 / sizeof(float);
}

Floats renewed(Floats factor, uint64_t rows, uint64_t rank) {
  Floats scratch(low_rank::orthogonalise_scratch_floats(rows, rank) + 16);
  renew_factor(factor.data(), rows, rank, kSource, aligned(scratch), widest_code_path());
  return factor;
}

double dot(const Floats& p, uint64_t rows, uint64_t rank, uint64_t j, uint64_t k) {
  double sum = 0;
  for (uint64_t i = 0; i < rows; ++i) sum += double{p[i * rank + j]} * p[i * rank + k];
  return sum;
}

void expect_orthonormal(const Floats& p, uint64_t rows, uint64_t rank) {
  for (uint64_t j = 0; j < rank; ++j)
    for (uint64_t k = 0; k <= j; ++k)
      EXPECT_NEAR(dot(p, rows, rank, j, k), j == k ? 1.0 : 0.0, 1e-5) << j << " and " << k;
}

TEST(Factor, DrawnFactorsSpanTheirStream) {
  const uint64_t rows = 60, rank = 3;
  Floats drawn(rows * rank), stream(rows * rank);
  Floats scratch(low_rank::orthogonalise_scratch_floats(rows, rank) + 16);
  draw_factor(drawn.data(), rows, rank, kSource, aligned(scratch), widest_code_path());
  expect_orthonormal(drawn, rows, rank);
  random_normal(kSource.seed, kSource.gradient, kSource.stream, 0, rows * rank, stream.data());
  for (uint64_t j = 0; j < rank; ++j) {  // projecting a column of the stream on the factor keeps it
    double length = 0, projected = 0;
    for (uint64_t i = 0; i < rows; ++i)
      length += double{stream[i * rank + j]} * stream[i * rank + j];
    for (uint64_t k = 0; k < rank; ++k) {
      double along = 0;
      for (uint64_t i = 0; i < rows; ++i)
        along += double{stream[i * rank + j]} * drawn[i * rank + k];
      projected += along * along;
    }
    EXPECT_NEAR(projected / length, 1.0, 1e-5);
  }
}

TEST(Factor, DeadColumnsAreDrawnAnewAndTheSpanIsKept) {
  const uint64_t rows = 90, rank = 4;
  Floats factor(rows * rank, 0.0f);
  for (uint64_t i = 0; i < rows; ++i) factor[i * rank + 2] = std::sin(0.1f * static_cast<float>(i));
  const Floats result = renewed(factor, rows, rank);
  expect_orthonormal(result, rows, rank);
  double length = 0, projected = 0;
  for (uint64_t i = 0; i < rows; ++i) length += double{factor[i * rank + 2]} * factor[i * rank + 2];
  for (uint64_t k = 0; k < rank; ++k) {
    double along = 0;
    for (uint64_t i = 0; i < rows; ++i)
      along += double{factor[i * rank + 2]} * result[i * rank + k];
    projected += along * along;
  }
  EXPECT_NEAR(projected / length, 1.0, 1e-5);
}

TEST(Factor, ASquareFactorIsCompleted) {
  Floats factor(16, 0.0f);
  factor[0] = 1;
  expect_orthonormal(renewed(factor, 4, 4), 4, 4);
  expect_orthonormal(renewed(Floats(1, 0.0f), 1, 1), 1, 1);
}

TEST(Factor, AllZeroLooksAtEveryNumber) {
  EXPECT_TRUE(all_zero(nullptr, 0));
  Floats values(5, 0.0f);
  values[1] = -0.0f;
  EXPECT_TRUE(all_zero(values.data(), 5));
  values[4] = 1e-45f;
  EXPECT_FALSE(all_zero(values.data(), 5));
}

}  // namespace
}  // namespace penstock::kernels::factor_test

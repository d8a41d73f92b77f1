// Orthogonalisation gives orthonormal columns with the span of the input, in order, for any input.
#include <gtest/gtest.h>
#include <kernels/low_rank.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace penstock::kernels::low_rank::orthogonalise_test {
namespace {

using Floats = std::vector<float>;

Floats gauss(uint64_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  Floats values(n);
  for (float& value : values) value = normal(generator);
  return values;
}

struct Result {
  Floats p;
  uint64_t zero_columns;
};
Result orthogonalised(Floats p, uint64_t rows, uint64_t rank, CodePath path = widest_code_path()) {
  Floats scratch(orthogonalise_scratch_floats(rows, rank) + 16);
  const auto address = reinterpret_cast<uintptr_t>(scratch.data());
  float* const room = scratch.data() + (64 - address % 64) % 64 / sizeof(float);
  const uint64_t zero_columns = orthogonalise(p.data(), rows, rank, room, path);
  return {std::move(p), zero_columns};
}

double dot(const Floats& a, const Floats& b, uint64_t rows, uint64_t rank, uint64_t j, uint64_t k) {
  double sum = 0;
  for (uint64_t i = 0; i < rows; ++i) sum += double{a[i * rank + j]} * b[i * rank + k];
  return sum;
}

bool is_zero(const Floats& p, uint64_t rows, uint64_t rank, uint64_t j) {
  for (uint64_t i = 0; i < rows; ++i)
    if (p[i * rank + j] != 0) return false;
  return true;
}

// Checks that columns are of length 1 or zero, and orthogonal.
void expect_orthonormal(const Result& result, uint64_t rows, uint64_t rank) {
  uint64_t zeros = 0;
  for (uint64_t j = 0; j < rank; ++j) {
    const bool zero = is_zero(result.p, rows, rank, j);
    zeros += zero;
    EXPECT_NEAR(dot(result.p, result.p, rows, rank, j, j), zero ? 0.0 : 1.0, 1e-5)
        << "column " << j;
    for (uint64_t k = 0; k < j; ++k)
      EXPECT_NEAR(dot(result.p, result.p, rows, rank, j, k), 0.0, 1e-5) << j << " and " << k;
  }
  EXPECT_EQ(zeros, result.zero_columns);
}

// Gram-Schmidt in long double, from the definition.
Floats reference(const Floats& p, uint64_t rows, uint64_t rank) {
  std::vector<std::vector<long double>> columns(rank, std::vector<long double>(rows));
  for (uint64_t j = 0; j < rank; ++j) {
    auto& column = columns[j];
    for (uint64_t i = 0; i < rows; ++i) column[i] = p[i * rank + j];
    for (int pass = 0; pass < 2; ++pass)
      for (uint64_t k = 0; k < j; ++k) {
        long double along = 0;
        for (uint64_t i = 0; i < rows; ++i) along += columns[k][i] * column[i];
        for (uint64_t i = 0; i < rows; ++i) column[i] -= along * columns[k][i];
      }
    long double square = 0;
    for (long double value : column) square += value * value;
    for (long double& value : column) value /= std::sqrt(square);
  }
  Floats q(rows * rank);
  for (uint64_t j = 0; j < rank; ++j)
    for (uint64_t i = 0; i < rows; ++i) q[i * rank + j] = static_cast<float>(columns[j][i]);
  return q;
}

TEST(Orthogonalise, EqualsGramSchmidtOnWellConditionedInput) {
  const struct {
    uint64_t rows, rank;
  } sizes[] = {{1, 1}, {2, 1}, {17, 2}, {64, 4}, {333, 5}, {1000, 8}, {40, 32}, {5000, 4}};
  for (const auto& size : sizes) {
    const Floats p = gauss(size.rows * size.rank, 11);
    const Result result = orthogonalised(p, size.rows, size.rank);
    expect_orthonormal(result, size.rows, size.rank);
    const Floats expected = reference(p, size.rows, size.rank);
    // Rounding of float times the condition number, which is below 100 for these.
    for (uint64_t e = 0; e < p.size(); ++e) ASSERT_NEAR(result.p[e], expected[e], 2e-6) << e;
  }
}

TEST(Orthogonalise, NearlyDependentColumnsBecomeOrthogonalAndKeepTheirDirection) {
  const uint64_t rows = 500, rank = 4;
  for (const double distance : {1e-2, 1e-4, 1e-5, 2e-6}) {
    // Four columns that differ from the first by `distance`, on a grid where sums are exact.
    Floats p(rows * rank);
    const Floats common = gauss(rows, 5), apart = gauss(rows * rank, 6);
    for (uint64_t i = 0; i < rows; ++i)
      for (uint64_t j = 0; j < rank; ++j)
        p[i * rank + j] =
            static_cast<float>(common[i] + (j > 0 ? distance * apart[i * rank + j] : 0));
    const Result result = orthogonalised(p, rows, rank);
    expect_orthonormal(result, rows, rank);
    EXPECT_EQ(result.zero_columns, 0u) << distance;
    const Floats expected = reference(p, rows, rank);
    // Q is float: an error of 1e-7 in an earlier column shows in a later one as 1e-7 / distance,
    // and 1 - cosine is half the square of that.
    const double angle = 1e-7 / distance;
    for (uint64_t j = 0; j < rank; ++j)
      EXPECT_NEAR(dot(result.p, expected, rows, rank, j, j), 1.0, 1e-6 + angle * angle)
          << distance << " " << j;
  }
}

// Expects orthonormal columns, to the rounding of float, for columns that are equal except for a
// part of size `apart`.
void expect_exactly_orthonormal(uint64_t rank, double apart) {
  const uint64_t rows = 4096;
  std::mt19937 generator(5);
  std::normal_distribution<double> normal;
  Floats p(rows * rank);
  for (uint64_t i = 0; i < rows; ++i) {
    const double shared = normal(generator);
    for (uint64_t j = 0; j < rank; ++j)
      p[i * rank + j] = static_cast<float>(shared + (j == 0 ? 0 : apart * normal(generator)));
  }
  const Result result = orthogonalised(p, rows, rank);
  for (uint64_t j = 0; j < rank; ++j)
    for (uint64_t k = 0; k <= j; ++k)
      EXPECT_NEAR(dot(result.p, result.p, rows, rank, j, k), j == k ? 1.0 : 0.0, 1e-7)
          << j << " and " << k << ", " << apart << " apart";
}

// After one pass of Cholesky-QR products and lengths are off by up to 1e-5 here.
TEST(Orthogonalise, NearlyDependentColumnsAreOrthonormalToTheRoundingOfFloat) {
  for (const double apart : {1.2e-5, 2e-5, 5e-5}) expect_exactly_orthonormal(8, apart);
}

// Distances on both sides of the bound for a second pass.
TEST(Orthogonalise, ColumnsThatAreFarFromDependentAreOrthonormalToTheRoundingOfFloat) {
  for (const double apart : {1e-2, 1e-1, 0.5, 1.0, 3.0}) {
    expect_exactly_orthonormal(2, apart);
    expect_exactly_orthonormal(32, apart);
  }
}

// Each column depends a little on the previous column: every single pivot looks harmless.
TEST(Orthogonalise, AChainOfDependentColumnsComesOutOrthonormal) {
  const uint64_t rows = 4096;
  for (const uint64_t rank : {4, 5, 8, 32})
    for (const double step : {0.011, 0.05, 0.3}) {
      const Floats directions = orthogonalised(gauss(rows * rank, 3), rows, rank).p;
      Floats p(rows * rank);
      for (uint64_t i = 0; i < rows; ++i)
        for (uint64_t j = 0; j < rank; ++j)
          p[i * rank + j] = static_cast<float>(j == 0 ? directions[i * rank]
                                                      : std::sqrt(1 - step * step) *
                                                                directions[i * rank + j - 1] +
                                                            step * directions[i * rank + j]);
      const Result result = orthogonalised(p, rows, rank);
      expect_orthonormal(result, rows, rank);
    }
}

TEST(Orthogonalise, DependentAndZeroColumnsBecomeZero) {
  const uint64_t rows = 300, rank = 5;
  Floats p = gauss(rows * rank, 7);
  for (uint64_t i = 0; i < rows; ++i) {
    p[i * rank + 1] = 0;
    p[i * rank + 3] = 2 * p[i * rank] - 0.5f * p[i * rank + 2];
  }
  const Result result = orthogonalised(p, rows, rank);
  expect_orthonormal(result, rows, rank);
  EXPECT_EQ(result.zero_columns, 2u);
  EXPECT_TRUE(is_zero(result.p, rows, rank, 1));
  EXPECT_TRUE(is_zero(result.p, rows, rank, 3));
  EXPECT_FALSE(is_zero(result.p, rows, rank, 4));
}

TEST(Orthogonalise, RepeatedColumnsLeaveOne) {
  const uint64_t rows = 77, rank = 4;
  const Floats column = gauss(rows, 8);
  Floats p(rows * rank);
  for (uint64_t i = 0; i < rows; ++i)
    for (uint64_t j = 0; j < rank; ++j) p[i * rank + j] = column[i];
  const Result result = orthogonalised(p, rows, rank);
  expect_orthonormal(result, rows, rank);
  EXPECT_EQ(result.zero_columns, 3u);
  EXPECT_FALSE(is_zero(result.p, rows, rank, 0));
}

TEST(Orthogonalise, ColumnsOfVeryDifferentLengthAreAllKept) {
  const uint64_t rows = 200, rank = 3;
  Floats p = gauss(rows * rank, 9);
  for (uint64_t i = 0; i < rows; ++i) {
    p[i * rank + 1] *= 1e-4f;
    p[i * rank + 2] *= 1e-6f;
  }
  const Result result = orthogonalised(p, rows, rank);
  expect_orthonormal(result, rows, rank);
  EXPECT_EQ(result.zero_columns, 0u);
}

TEST(Orthogonalise, MagnitudeDoesNotMatter) {
  const uint64_t rows = 130, rank = 4;
  for (const float scale : {1e-38f, 1e-30f, 1e30f, 5e37f}) {
    Floats p = gauss(rows * rank, 10);
    for (float& value : p) value *= scale;
    const Result result = orthogonalised(p, rows, rank);
    expect_orthonormal(result, rows, rank);
    EXPECT_EQ(result.zero_columns, 0u) << scale;
  }
}

TEST(Orthogonalise, SubnormalAndLargestNumbersStayFinite) {
  const uint64_t rows = 35, rank = 3;
  for (const float value :
       {std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::max()}) {
    Floats p(rows * rank);
    std::mt19937 generator(12);
    for (float& entry : p) entry = generator() % 2 == 0 ? value : -value;
    const Result result = orthogonalised(p, rows, rank);
    expect_orthonormal(result, rows, rank);
    EXPECT_EQ(result.zero_columns, 0u);
  }
}

TEST(Orthogonalise, ColumnsThatAreNotFiniteBecomeZeroAndSpoilNoOther) {
  const uint64_t rows = 50, rank = 4;
  Floats p = gauss(rows * rank, 13);
  p[7 * rank + 1] = std::numeric_limits<float>::quiet_NaN();
  p[9 * rank + 2] = -std::numeric_limits<float>::infinity();
  const Result result = orthogonalised(p, rows, rank);
  expect_orthonormal(result, rows, rank);
  EXPECT_EQ(result.zero_columns, 2u);
  EXPECT_TRUE(is_zero(result.p, rows, rank, 1));
  EXPECT_TRUE(is_zero(result.p, rows, rank, 2));
}

TEST(Orthogonalise, MoreColumnsThanRowsLeaveZeroColumns) {
  const Result result = orthogonalised(gauss(3 * 5, 14), 3, 5);
  expect_orthonormal(result, 3, 5);
  EXPECT_EQ(result.zero_columns, 2u);
}

TEST(Orthogonalise, NothingAndAllZeroGiveZeroColumns) {
  EXPECT_EQ(orthogonalised({}, 0, 3).zero_columns, 3u);
  EXPECT_EQ(orthogonalised(Floats(40 * 4, 0.0f), 40, 4).zero_columns, 4u);
  EXPECT_EQ(orthogonalised({-3.0f}, 1, 1).p, Floats{-1.0f});
}

TEST(Orthogonalise, EveryCodePathGivesTheSameBits) {
  const uint64_t rows = 421, rank = 6;
  Floats dependent = gauss(rows * rank, 15);
  for (uint64_t i = 0; i < rows; ++i) dependent[i * rank + 4] = dependent[i * rank + 1];
  for (const Floats& p : {gauss(rows * rank, 16), dependent}) {
    const Result expected = orthogonalised(p, rows, rank, CodePath::kPortable);
    for (const CodePath path : kAllCodePaths) {
      if (!code_path_supported(path)) continue;
      const Result result = orthogonalised(p, rows, rank, path);
      EXPECT_EQ(result.zero_columns, expected.zero_columns);
      EXPECT_EQ(0, std::memcmp(result.p.data(), expected.p.data(), p.size() * sizeof(float)))
          << code_path_name(path);
    }
  }
}

}  // namespace
}  // namespace penstock::kernels::low_rank::orthogonalise_test

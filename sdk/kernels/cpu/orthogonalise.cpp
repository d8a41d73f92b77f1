// Orthogonalisation of tall, thin factors.
//
// Cholesky-QR: with G = P^T P = L L^T, the columns of P L^-T are orthonormal up to cond(P)^2 times
// the rounding of G. G is summed in double. So if the columns together are far from dependent, the
// error after one pass is the rounding of float; otherwise a second pass reaches this error
// (Yamamoto et al., "Roundoff error analysis of the CholeskyQR2 algorithm", ETNA 2015). If a pivot
// is too small for this, modified Gram-Schmidt runs instead, on each column until projecting
// changes little.
#include <kernels/low_rank.hpp>

#include "low_rank_paths.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace penstock::kernels::low_rank {
namespace {

// A pivot is the squared length of a column after projecting. Cholesky is trusted if the pivot is
// above these shares of the column's own squared length and of the longest column's squared length.
// The second share is above kDependent squared, so that Gram-Schmidt applies the exact rule.
constexpr double kOwnPivot = 1e-10;
constexpr double kLongestPivot = 1e-13;
// The product of the pivots' shares is the determinant of G with columns of length 1, and G's
// smallest eigenvalue is more than a third of it. Above this bound the rounding of G does not show
// in a float after one pass. A bound for each pivot would not be enough, because columns that each
// depend a little on the previous column depend much on all previous columns together.
constexpr double kOnePassDeterminant = 1e-6;
// A column is dependent if projecting leaves at most this share of its own or of the longest
// length.
constexpr double kDependent = 1e-7;
constexpr int kMaxProjections = 4;

// Doubles of temporary memory, first for the lanes of a Gram matrix, then for rows that are being
// solved.
uint64_t temporary_doubles(uint64_t rank) {
  return rank * std::max(rank * kLanes, kSolvedRows);
}

struct Columns {
  float* data;
  uint64_t stride;  // padded length: zeros behind the end
  uint64_t rank;
  const PathTable& path;

  float* column(uint64_t j) const { return data + j * stride; }
  double dot(uint64_t a, uint64_t b) const { return path.dot(column(a), column(b), stride); }
  bool is_zero(uint64_t j) const {
    return std::all_of(column(j), column(j) + stride, [](float value) { return value == 0.0f; });
  }
  void clear(uint64_t j) const { std::memset(column(j), 0, stride * sizeof(float)); }
  void divide(uint64_t j, double length) const {
    float* const values = column(j);
    for (uint64_t i = 0; i < stride; ++i) values[i] = static_cast<float>(values[i] / length);
  }
};

// lower[rank x rank] <- the Cholesky factor of the columns' Gram matrix. Returns the product of the
// pivots' shares in their columns' squares, or 0, with `lower` undefined, if a pivot is too small
// or not finite.
double factor_gram(const Columns& p, double* lower, double* temporary) {
  const uint64_t rank = p.rank;
  p.path.gram(p.data, p.stride, rank, temporary, lower);
  double longest = 0, determinant = 1;
  for (uint64_t j = 0; j < rank; ++j) longest = std::max(longest, lower[j * rank + j]);
  for (uint64_t j = 0; j < rank; ++j) {
    for (uint64_t k = 0; k < j; ++k) {
      double rest = lower[j * rank + k];
      for (uint64_t l = 0; l < k; ++l) rest -= lower[j * rank + l] * lower[k * rank + l];
      lower[j * rank + k] = rest / lower[k * rank + k];
    }
    const double own = lower[j * rank + j];
    double pivot = own;
    for (uint64_t l = 0; l < j; ++l) pivot -= lower[j * rank + l] * lower[j * rank + l];
    const bool trusted =
        std::isfinite(pivot) && pivot > kOwnPivot * own && pivot > kLongestPivot * longest;
    if (!trusted) return 0;
    determinant = std::max(determinant * (pivot / own), std::numeric_limits<double>::min());
    lower[j * rank + j] = std::sqrt(pivot);
  }
  return determinant;
}

bool cholesky(const Columns& p, double* lower, double* temporary) {
  const double determinant = factor_gram(p, lower, temporary);
  if (determinant == 0) return false;
  p.path.solve(p.data, p.stride, p.rank, lower, temporary);
  if (determinant > kOnePassDeterminant) return true;
  if (factor_gram(p, lower, temporary) == 0) return false;
  p.path.solve(p.data, p.stride, p.rank, lower, temporary);
  return true;
}

// The length of a column; 0 if the column holds a number that is not finite.
double finite_length(const Columns& p, uint64_t j) {
  const double length = std::sqrt(p.dot(j, j));
  return std::isfinite(length) ? length : 0.0;
}

// Makes column j orthogonal to the earlier columns. Returns the length that is left of `length`, or
// 0 if it is at most `floor`.
double project_out(const Columns& p, uint64_t j, double length, double floor) {
  for (int pass = 0; pass < kMaxProjections; ++pass) {
    for (uint64_t k = 0; k < j; ++k)
      p.path.subtract(p.column(j), p.column(k), p.dot(k, j), p.stride);
    const double rest = std::sqrt(p.dot(j, j));
    if (!(rest > floor)) return 0;
    if (rest > 0.5 * length) return rest;  // little was projected out: orthogonal to rounding
    length = rest;
  }
  return 0;  // every pass halves what is left: only rounding remains
}

void gram_schmidt(const Columns& p) {
  double longest = 0;
  for (uint64_t j = 0; j < p.rank; ++j) longest = std::max(longest, finite_length(p, j));
  for (uint64_t j = 0; j < p.rank; ++j) {
    double length = finite_length(p, j);
    if (!(length > kDependent * longest)) {
      p.clear(j);
      continue;
    }
    // By a power of two, which rounds nothing, so that subnormal columns keep their precision.
    const double scale = std::ldexp(1.0, std::ilogb(length));
    p.divide(j, scale);
    length /= scale;
    const double floor = kDependent * std::max(length, longest / scale);
    const double rest = project_out(p, j, length, floor);
    if (rest > 0)
      p.divide(j, rest);
    else
      p.clear(j);
  }
}

}  // namespace

uint64_t orthogonalise_scratch_floats(uint64_t rows, uint64_t rank) noexcept {
  const uint64_t doubles = temporary_doubles(rank) + rank * rank;
  return rank * padded(rows) + 2 * doubles;
}

uint64_t orthogonalise(float* p, uint64_t rows, uint64_t rank, float* scratch,
                       CodePath path) noexcept {
  const uint64_t stride = padded(rows);
  const Columns columns{scratch, stride, rank, path_table(path)};
  double* const temporary = reinterpret_cast<double*>(scratch + rank * stride);
  double* const lower = temporary + temporary_doubles(rank);
  to_columns(p, rows, rank, columns.data, stride);
  if (!cholesky(columns, lower, temporary)) gram_schmidt(columns);
  from_columns(columns.data, stride, rows, rank, p);

  uint64_t zero_columns = 0;
  for (uint64_t j = 0; j < rank; ++j) zero_columns += columns.is_zero(j) ? 1 : 0;
  return zero_columns;
}

}  // namespace penstock::kernels::low_rank

// See dct.hpp.
#include "dct.hpp"

#include <algorithm>
#include <cmath>

namespace demo {
namespace {

using penstock::sdk::Block;
using penstock::sdk::kBlockSide;
using penstock::sdk::kBlockSize;

constexpr double kPi = 3.14159265358979323846;

// cos(pi turn / (2 n)). The angle is brought into [0, pi / 4], where 12 terms of the power series
// leave less than a rounding.
double cosine(uint64_t turn, uint64_t n) {
  turn %= 4 * n;
  if (turn > 2 * n) turn = 4 * n - turn;
  const bool negative = turn > n;
  if (negative) turn = 2 * n - turn;
  const bool sine = 2 * turn > n;  // of the rest to a right angle
  if (sine) turn = n - turn;
  const double angle = kPi * static_cast<double>(turn) / (2 * static_cast<double>(n));
  double term = sine ? angle : 1, sum = term;
  for (int i = sine ? 2 : 1; i < 24; i += 2) {
    term *= -angle * angle / (i * (i + 1.0));
    sum += term;
  }
  return negative ? -sum : sum;
}

bool all_zero(const float* numbers, uint64_t n) {
  return std::all_of(numbers, numbers + n, [](float number) { return number == 0; });
}

// c = a b, where a has `rows` rows and `inner` <= 64 columns and b has `cols` columns. Sums run
// over the inner index in ascending order; four of their terms are added at a time, and terms that
// are zero because of a number of a or a row of b are left out. Neither changes a sum.
void multiply(const float* a, const float* b, uint64_t rows, uint64_t inner, uint64_t cols,
              float* __restrict c) {
  bool empty[kBlockSide];
  for (uint64_t l = 0; l < inner; ++l) empty[l] = all_zero(b + l * cols, cols);
  for (uint64_t i = 0; i < rows; ++i) {
    float* __restrict const to = c + i * cols;
    std::fill_n(to, cols, 0.0f);
    float factors[kBlockSide];
    const float* from[kBlockSide];
    uint64_t n = 0, l = 0;
    for (; l < inner; ++l) {
      factors[n] = a[i * inner + l];
      from[n] = b + l * cols;
      n += factors[n] != 0 && !empty[l];
    }
    for (l = 0; l + 4 <= n; l += 4)
      for (uint64_t j = 0; j < cols; ++j)
        to[j] = to[j] + factors[l] * from[l][j] + factors[l + 1] * from[l + 1][j] +
                factors[l + 2] * from[l + 2][j] + factors[l + 3] * from[l + 3][j];
    for (; l < n; ++l)
      for (uint64_t j = 0; j < cols; ++j) to[j] += factors[l] * from[l][j];
  }
}

}  // namespace

Dct::Dct() : matrices_(place(kBlockSide + 1)), transposed_(matrices_.size()) {
  for (uint64_t n = 1; n <= kBlockSide; ++n)
    for (uint64_t k = 0; k < n; ++k)
      for (uint64_t j = 0; j < n; ++j) {
        const double scale = std::sqrt((k == 0 ? 1.0 : 2.0) / static_cast<double>(n));
        const auto entry = static_cast<float>(scale * cosine((2 * j + 1) * k, n));
        matrices_[place(n) + k * n + j] = transposed_[place(n) + j * n + k] = entry;
      }
}

void Dct::forward(const Block& block, float* numbers) const {
  float half[kBlockSize];
  if (block.is_run()) {
    for (uint64_t at = 0; at < block.cols; at += kBlockSide) {
      const uint64_t n = std::min(kBlockSide, block.cols - at);
      multiply(numbers + at, columns_of(n), 1, n, n, half);
      std::copy_n(half, n, numbers + at);
    }
    return;
  }
  multiply(numbers, columns_of(block.cols), block.rows, block.cols, block.cols, half);
  multiply(rows_of(block.rows), half, block.rows, block.rows, block.cols, numbers);
}

void Dct::inverse(const Block& block, float* numbers) const {
  float half[kBlockSize];
  if (block.is_run()) {
    for (uint64_t at = 0; at < block.cols; at += kBlockSide) {
      const uint64_t n = std::min(kBlockSide, block.cols - at);
      multiply(numbers + at, rows_of(n), 1, n, n, half);
      std::copy_n(half, n, numbers + at);
    }
    return;
  }
  multiply(numbers, rows_of(block.cols), block.rows, block.cols, block.cols, half);
  multiply(columns_of(block.rows), half, block.rows, block.rows, block.cols, numbers);
}

}  // namespace demo

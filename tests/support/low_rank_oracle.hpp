// Low-rank methods in double, as plain loops over matrices, written from the mathematics. For tests
// only.
#pragma once

#include <testing/data.hpp>
#include <testing/gtest.hpp>
#include <testing/rig.hpp>

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

namespace penstock::test::oracle {

struct Matrix {
  uint64_t rows = 0, cols = 0;
  std::vector<double> entries;  // row-major

  Matrix() = default;
  Matrix(uint64_t r, uint64_t c) : rows(r), cols(c), entries(r * c, 0.0) {}
  Matrix(uint64_t r, uint64_t c, const std::vector<float>& from)
      : rows(r), cols(c), entries(from.begin(), from.end()) {}
  double& at(uint64_t i, uint64_t j) { return entries[i * cols + j]; }
  double at(uint64_t i, uint64_t j) const { return entries[i * cols + j]; }
};

inline Matrix transposed(const Matrix& a) {
  Matrix result(a.cols, a.rows);
  for (uint64_t i = 0; i < a.rows; ++i)
    for (uint64_t j = 0; j < a.cols; ++j) result.at(j, i) = a.at(i, j);
  return result;
}

inline Matrix product(const Matrix& a, const Matrix& b) {
  Matrix result(a.rows, b.cols);
  for (uint64_t i = 0; i < a.rows; ++i)
    for (uint64_t j = 0; j < b.cols; ++j)
      for (uint64_t k = 0; k < a.cols; ++k) result.at(i, j) += a.at(i, k) * b.at(k, j);
  return result;
}

inline Matrix combined(const Matrix& a, double factor, const Matrix& b) {
  Matrix result = a;
  for (uint64_t e = 0; e < b.entries.size(); ++e) result.entries[e] += factor * b.entries[e];
  return result;
}

// Gram-Schmidt, with two projections of every column. The columns must be independent.
inline Matrix orthonormal(Matrix a) {
  for (uint64_t j = 0; j < a.cols; ++j) {
    for (int pass = 0; pass < 2; ++pass)
      for (uint64_t k = 0; k < j; ++k) {
        double along = 0;
        for (uint64_t i = 0; i < a.rows; ++i) along += a.at(i, k) * a.at(i, j);
        for (uint64_t i = 0; i < a.rows; ++i) a.at(i, j) -= along * a.at(i, k);
      }
    double square = 0;
    for (uint64_t i = 0; i < a.rows; ++i) square += a.at(i, j) * a.at(i, j);
    for (uint64_t i = 0; i < a.rows; ++i) a.at(i, j) /= std::sqrt(square);
  }
  return a;
}

inline uint64_t mixed(uint64_t z) {  // SplitMix64
  z += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// The normal numbers that all ranks draw for a factor, with the Box-Muller method from a counter.
inline Matrix normals(uint64_t seed, uint64_t gradient, uint64_t stream, uint64_t rows,
                      uint64_t cols) {
  constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;
  const uint64_t base = mixed(seed ^ mixed(gradient * kGolden + stream));
  Matrix result(rows, cols);
  for (uint64_t i = 0; i < rows * cols; ++i) {
    const uint64_t bits = mixed(base + i * kGolden);
    const double u1 = (static_cast<double>(bits >> 32) + 0.5) / 4294967296.0;
    const double u2 = (static_cast<double>(bits & 0xffffffffu) + 0.5) / 4294967296.0;
    result.entries[i] = std::sqrt(-2 * std::log(u1)) * std::cos(2 * std::numbers::pi * u2);
  }
  return result;
}

// A gradient of one rank as in training: a few strong directions that all ranks share in every
// step, and noise of this rank. Because of the gap between both, subspace iteration converges, and
// rounding does not grow from step to step.
inline std::vector<float> layered_gradient(uint64_t rows, uint64_t cols, uint64_t directions,
                                           uint64_t rank, uint64_t step) {
  Random common(77), own(1000 + 31 * rank + 1009 * step);
  std::vector<double> entries(rows * cols, 0.0);
  for (uint64_t d = 0; d < directions; ++d) {
    std::vector<double> left(rows), right(cols);
    for (double& value : left) value = common.gauss();
    for (double& value : right) value = common.gauss();
    for (uint64_t i = 0; i < rows; ++i)
      for (uint64_t j = 0; j < cols; ++j)
        entries[i * cols + j] += std::pow(0.5, static_cast<double>(d)) * left[i] * right[j];
  }
  std::vector<float> gradient(rows * cols);
  for (uint64_t e = 0; e < gradient.size(); ++e)
    gradient[e] = static_cast<float>(entries[e] + 0.05 * own.gauss());
  return gradient;
}

inline double largest(const std::vector<double>& values) {
  double found = 0;
  for (double value : values) found = std::max(found, std::fabs(value));
  return found;
}

// The matrix view of a shape: first dimension by the product of the others. A vector is n by 1.
struct View {
  uint64_t rows, cols;
};
inline View view_of(const Shape& shape) {
  uint64_t numel = 1;
  for (int64_t size : shape) numel *= static_cast<uint64_t>(size);
  if (shape.size() < 2 || shape[0] == 0) return {numel, 1};
  return {static_cast<uint64_t>(shape[0]), numel / static_cast<uint64_t>(shape[0])};
}

// gradients[rank][item] of one step for these shapes, with three common directions.
inline RankTensors layered_gradients(const std::vector<Shape>& shapes, uint32_t ranks,
                                     uint64_t step) {
  RankTensors gradients(ranks);
  for (uint32_t r = 0; r < ranks; ++r)
    for (uint64_t i = 0; i < shapes.size(); ++i) {
      const View view = view_of(shapes[i]);
      gradients[r].push_back(layered_gradient(view.rows, view.cols, 3, r + 100 * i, step));
    }
  return gradients;
}

// The sum over ranks of one item's gradients.
inline std::vector<double> sum_of(const RankTensors& gradients, uint64_t item) {
  std::vector<double> sum(gradients[0][item].size(), 0.0);
  for (const Tensors& of_rank : gradients)
    for (uint64_t e = 0; e < sum.size(); ++e) sum[e] += of_rank[item][e];
  return sum;
}

}  // namespace penstock::test::oracle

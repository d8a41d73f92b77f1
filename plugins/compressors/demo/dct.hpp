// The orthonormal discrete cosine transform (DCT-II) of blocks, and its inverse.
//
// F[k][j] = sqrt(2 / N) cos(pi (2 j + 1) k / (2 N)), row 0 times sqrt(1/2). A block X of R rows and
// C columns becomes F_R X F_C^T; a run is cut into rows of 64, of which the last may be shorter,
// and each row is transformed by itself. All sums have one order, and the cosines come from sums
// and products alone, so every machine gets equal bits.
#pragma once

#include <methods/blocks.hpp>

#include <vector>

namespace demo {

class Dct {
 public:
  Dct();
  // [step] In place. `inverse` skips zeros, of which a block with few coefficients has many.
  void forward(const penstock::sdk::Block& block, float* numbers) const;
  void inverse(const penstock::sdk::Block& block, float* numbers) const;

 private:
  // F_n and its transpose, row by row, for n from 1 to 64.
  const float* rows_of(uint64_t n) const { return matrices_.data() + place(n); }
  const float* columns_of(uint64_t n) const { return transposed_.data() + place(n); }
  static constexpr uint64_t place(uint64_t n) { return (n - 1) * n * (2 * n - 1) / 6; }

  std::vector<float> matrices_;
  std::vector<float> transposed_;
};

}  // namespace demo

// The innermost loops of the low-rank kernels, once per code path.
//
// Factors come here transposed, one column of the factor after the other, `stride` floats apart
// with stride a multiple of 16 and zeros behind the end, so that lanes run along the long
// dimension.
#pragma once

#include <kernels/code_path.hpp>

#include <cstdint>

namespace penstock::kernels::low_rank {

inline constexpr uint64_t kLanes = 16;

constexpr uint64_t padded(uint64_t length) {
  return (length + kLanes - 1) / kLanes * kLanes;
}

struct PathTable {
  // p[rows x rank] = m[rows x cols] q; with take_out also m -= p q^T, row by row.
  void (*multiply)(uint64_t rows, uint64_t cols, uint64_t rank, float* m, const float* q_columns,
                   uint64_t stride, float* p, bool take_out);
  // q = m^T p into q_columns, which need not be cleared.
  void (*multiply_transposed)(uint64_t rows, uint64_t cols, uint64_t rank, const float* m,
                              const float* p, float* q_columns, uint64_t stride);
  // m -= p q^T.
  void (*take_out)(uint64_t rows, uint64_t cols, uint64_t rank, float* m, const float* p,
                   const float* q_columns, uint64_t stride);
  // out = scale * p q^T.
  void (*expand)(uint64_t rows, uint64_t cols, uint64_t rank, float* out, const float* p,
                 const float* q_columns, uint64_t stride, float scale);
  // The sum of a[i] * b[i] in double; `padded_count` is a multiple of 16.
  double (*dot)(const float* a, const float* b, uint64_t padded_count);
  // target[i] -= factor * direction[i], computed in double and rounded to float.
  void (*subtract)(float* target, const float* direction, double factor, uint64_t padded_count);
  // columns <- columns * transpose(inverse(lower)): per entry i, with lower[rank x rank] row-major,
  // x_j = (columns_j[i] - sum_k<j lower[j][k] x_k) / lower[j][j] in double.
  void (*solve)(float* columns, uint64_t stride, uint64_t rank, const double* lower,
                double* temporary /* [rank * 16] */);
};

// `path` must be supported by this processor.
const PathTable& path_table(CodePath path) noexcept;

}  // namespace penstock::kernels::low_rank

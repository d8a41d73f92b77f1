// The innermost loops of the low-rank kernels, once per code path.
//
// Factors are transposed here: their columns lie one after the other, `stride` floats apart, so
// that lanes run along the long dimension. stride is a multiple of 16, and there are zeros behind
// the end of a column.
#pragma once

#include <kernels/code_path.hpp>

#include <cstdint>

namespace penstock::kernels::low_rank {

inline constexpr uint64_t kLanes = 16;
inline constexpr uint64_t kSolvedRows = 32;  // at a time; their subtractions overlap

inline constexpr uint64_t kPanel =
    512;  // columns per sweep, so that the running sums stay in cache
inline constexpr uint64_t kRowGroup = 8;  // rows summed pairwise before they join the running sum

constexpr uint64_t padded(uint64_t length) {
  return (length + kLanes - 1) / kLanes * kLanes;
}

struct PathTable {
  // p[rows x rank] = m[rows x cols] q; with take_out also m -= p q^T, row by row.
  void (*multiply)(uint64_t rows, uint64_t cols, uint64_t rank, float* m, const float* q_columns,
                   uint64_t stride, float* p, bool take_out);
  // q += m^T p for the columns [first, last) of m. Calls for blocks of whole groups of rows, one
  // after the other, add in the order of a single call.
  void (*multiply_transposed)(uint64_t rows, uint64_t cols, uint64_t rank, const float* m,
                              const float* p, float* q_columns, uint64_t stride, uint64_t first,
                              uint64_t last);
  // m -= p q^T.
  void (*take_out)(uint64_t rows, uint64_t cols, uint64_t rank, float* m, const float* p,
                   const float* q_columns, uint64_t stride);
  // out = scale * p q^T.
  void (*expand)(uint64_t rows, uint64_t cols, uint64_t rank, float* out, const float* p,
                 const float* q_columns, uint64_t stride, float scale);
  // The sum of a[i] * b[i] in double; `padded_count` is a multiple of 16.
  double (*dot)(const float* a, const float* b, uint64_t padded_count);
  // gram[j * rank + k], k <= j < rank, becomes the `dot` of columns j and k. Entries with k > j do
  // not change.
  void (*gram)(const float* columns, uint64_t stride, uint64_t rank,
               double* lanes /* [rank * rank * kLanes] */, double* gram);
  // target[i] -= factor * direction[i], computed in double and rounded to float.
  void (*subtract)(float* target, const float* direction, double factor, uint64_t padded_count);
  // columns <- columns * transpose(inverse(lower)). For each entry i, with lower[rank x rank]
  // row-major, x_j = (columns_j[i] - sum_k<j lower[j][k] x_k) * (1 / lower[j][j]) in double.
  void (*solve)(float* columns, uint64_t stride, uint64_t rank, const double* lower,
                double* temporary /* [rank * kSolvedRows] */);
};

// `path` must be supported by this processor.
const PathTable& path_table(CodePath path) noexcept;

// factor[length x rank] -> columns, `stride` apart, with zeros behind the end of each column.
void to_columns(const float* factor, uint64_t length, uint64_t rank, float* columns,
                uint64_t stride) noexcept;
void from_columns(const float* columns, uint64_t stride, uint64_t length, uint64_t rank,
                  float* factor) noexcept;

}  // namespace penstock::kernels::low_rank

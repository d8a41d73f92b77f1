// Products with thin factors: turns the factor on its side, then runs the loops of the code path.
#include <kernels/low_rank.hpp>

#include "low_rank_paths.hpp"

#include <cstring>

namespace penstock::kernels::low_rank {
namespace {

// q[length x rank] -> columns, `stride` apart, zeros behind the end of each.
void to_columns(const float* q, uint64_t length, uint64_t rank, float* columns, uint64_t stride) {
  for (uint64_t c = 0; c < rank; ++c) {
    for (uint64_t j = 0; j < length; ++j) columns[c * stride + j] = q[j * rank + c];
    std::memset(columns + c * stride + length, 0, (stride - length) * sizeof(float));
  }
}

void from_columns(const float* columns, uint64_t stride, uint64_t length, uint64_t rank, float* q) {
  for (uint64_t c = 0; c < rank; ++c)
    for (uint64_t j = 0; j < length; ++j) q[j * rank + c] = columns[c * stride + j];
}

}  // namespace

uint64_t scratch_floats(const Shape& shape) noexcept {
  return shape.rank * padded(shape.cols);
}

void multiply(const Shape& shape, const float* m, const float* q, float* p, float* scratch,
              CodePath path) noexcept {
  const uint64_t stride = padded(shape.cols);
  to_columns(q, shape.cols, shape.rank, scratch, stride);
  // Without take_out the loops only read m.
  path_table(path).multiply(shape.rows, shape.cols, shape.rank, const_cast<float*>(m), scratch,
                            stride, p, false);
}

void multiply_and_take_out(const Shape& shape, float* m, const float* q, float* p, float* scratch,
                           CodePath path) noexcept {
  const uint64_t stride = padded(shape.cols);
  to_columns(q, shape.cols, shape.rank, scratch, stride);
  path_table(path).multiply(shape.rows, shape.cols, shape.rank, m, scratch, stride, p, true);
}

void multiply_transposed(const Shape& shape, const float* m, const float* p, float* q,
                         float* scratch, CodePath path) noexcept {
  const uint64_t stride = padded(shape.cols);
  path_table(path).multiply_transposed(shape.rows, shape.cols, shape.rank, m, p, scratch, stride);
  from_columns(scratch, stride, shape.cols, shape.rank, q);
}

void take_out(const Shape& shape, float* m, const float* p, const float* q, float* scratch,
              CodePath path) noexcept {
  const uint64_t stride = padded(shape.cols);
  to_columns(q, shape.cols, shape.rank, scratch, stride);
  path_table(path).take_out(shape.rows, shape.cols, shape.rank, m, p, scratch, stride);
}

void expand(const Shape& shape, const float* p, const float* q, float scale, float* out,
            float* scratch, CodePath path) noexcept {
  const uint64_t stride = padded(shape.cols);
  to_columns(q, shape.cols, shape.rank, scratch, stride);
  path_table(path).expand(shape.rows, shape.cols, shape.rank, out, p, scratch, stride, scale);
}

}  // namespace penstock::kernels::low_rank

// Products with thin factors: transposes the factor, then runs the loops of the code path.
#include <kernels/low_rank.hpp>

#include <kernels/stream.hpp>
#include "low_rank_paths.hpp"

#include <algorithm>
#include <cstring>

namespace penstock::kernels::low_rank {
// Rows of a block, which stays in the first-level cache, so that a line is read once.
constexpr uint64_t kBlock = 64;

typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t Lanes __attribute__((vector_size(16)));

// to[c][i] = from[i][c], 4 x 4; the strides are distances between rows.
static void turn_four(const float* from, uint64_t from_stride, float* to, uint64_t to_stride) {
  const auto row = [&](uint64_t i) {
    return *reinterpret_cast<const Four*>(from + i * from_stride);
  };
  constexpr Lanes kLow{0, 4, 1, 5}, kHigh{2, 6, 3, 7}, kFirst{0, 1, 4, 5}, kSecond{2, 3, 6, 7};
  const Four low0 = __builtin_shuffle(row(0), row(1), kLow);
  const Four low1 = __builtin_shuffle(row(2), row(3), kLow);
  const Four high0 = __builtin_shuffle(row(0), row(1), kHigh);
  const Four high1 = __builtin_shuffle(row(2), row(3), kHigh);
  const auto store = [&](uint64_t c, Four values) {
    *reinterpret_cast<Four*>(to + c * to_stride) = values;
  };
  store(0, __builtin_shuffle(low0, low1, kFirst));
  store(1, __builtin_shuffle(low0, low1, kSecond));
  store(2, __builtin_shuffle(high0, high1, kFirst));
  store(3, __builtin_shuffle(high0, high1, kSecond));
}

// body4(i, c) for squares of four rows and columns, body1(i, c) for the rest.
template <typename Body4, typename Body1>
static void for_squares(uint64_t length, uint64_t rank, Body4 body4, Body1 body1) {
  for (uint64_t begin = 0; begin < length; begin += kBlock) {
    const uint64_t end = std::min(begin + kBlock, length);
    const uint64_t whole = begin + (end - begin) / 4 * 4;
    uint64_t c = 0;
    for (; c + 4 <= rank; c += 4) {
      for (uint64_t i = begin; i < whole; i += 4) body4(i, c);
      for (uint64_t i = whole; i < end; ++i)
        for (uint64_t d = c; d < c + 4; ++d) body1(i, d);
    }
    for (; c < rank; ++c)
      for (uint64_t i = begin; i < end; ++i) body1(i, c);
  }
}

void to_columns(const float* factor, uint64_t length, uint64_t rank, float* columns,
                uint64_t stride) noexcept {
  for_squares(
      length, rank,
      [&](uint64_t i, uint64_t c) {
        turn_four(factor + i * rank + c, rank, columns + c * stride + i, stride);
      },
      [&](uint64_t i, uint64_t c) { columns[c * stride + i] = factor[i * rank + c]; });
  for (uint64_t c = 0; c < rank; ++c)
    std::memset(columns + c * stride + length, 0, (stride - length) * sizeof(float));
}

void from_columns(const float* columns, uint64_t stride, uint64_t length, uint64_t rank,
                  float* factor) noexcept {
  for_squares(
      length, rank,
      [&](uint64_t i, uint64_t c) {
        turn_four(columns + c * stride + i, stride, factor + i * rank + c, rank);
      },
      [&](uint64_t i, uint64_t c) { factor[i * rank + c] = columns[c * stride + i]; });
}

namespace {

// Elements that are compensated before they are multiplied: they stay in the second-level cache.
constexpr uint64_t kFoldElements = 16 * 1024;

// Calls body(first row, rows) for blocks of whole groups of the rows [begin, end), after it has
// compensated their columns [left, right). If there is no fold, it calls body once for all rows.
template <typename Body>
void for_blocks(const Shape& shape, const Fold* fold, CodePath path, uint64_t begin, uint64_t end,
                uint64_t left, uint64_t right, Body body) {
  if (fold == nullptr) return body(begin, end - begin);
  const bool whole = right - left == shape.cols;
  const uint64_t groups = kFoldElements / ((right - left) * kRowGroup + 1) + 1;
  for (uint64_t first = begin; first < end; first += groups * kRowGroup) {
    const uint64_t rows = std::min(groups * kRowGroup, end - first);
    if (whole)
      compensate(fold->from(first * shape.cols), rows * shape.cols, path);
    else
      for (uint64_t i = first; i < first + rows; ++i)
        compensate(fold->from(i * shape.cols + left), right - left, path);
    body(first, rows);
  }
}

// Threads share the rows, because each row of the result has its own sums.
void multiply_blocks(const Shape& shape, float* m, const float* q, float* p, float* scratch,
                     const Execution& on, const Fold* fold, bool take_out) {
  const uint64_t stride = padded(shape.cols);
  to_columns(q, shape.cols, shape.rank, scratch, stride);
  const auto multiply_rows = [&](uint64_t first, uint64_t rows) {
    path_table(on.path).multiply(rows, shape.cols, shape.rank, m + first * shape.cols, scratch,
                                 stride, p + first * shape.rank, take_out);
  };
  on.workers.for_rows(shape.rows, shape.cols, kRowGroup,
                      [&](uint32_t, uint64_t begin, uint64_t end) {
                        for_blocks(shape, fold, on.path, begin, end, 0, shape.cols, multiply_rows);
                      });
}

// Expands in tiles of a few rows, as many rows as share the loads of a factor.
void expand_streamed(const Shape& shape, const float* p, const float* q_columns, float scale,
                     float* out, CodePath path) {
  constexpr uint64_t kRows = 4, kCols = 2 * kStreamTile / kRows;
  alignas(64) float tile[kRows * kCols];
  for (uint64_t i = 0; i < shape.rows; i += kRows) {
    const uint64_t rows = std::min(kRows, shape.rows - i);
    for (uint64_t j = 0; j < shape.cols; j += kCols) {
      const uint64_t cols = std::min(kCols, shape.cols - j);
      path_table(path).expand(rows, cols, shape.rank, tile, p + i * shape.rank, q_columns + j,
                              padded(shape.cols), scale);
      for (uint64_t r = 0; r < rows; ++r)
        stream(out + (i + r) * shape.cols + j, tile + r * cols, cols);
    }
  }
  end_stream();
}

}  // namespace

uint64_t scratch_floats(const Shape& shape) noexcept {
  return shape.rank * padded(shape.cols);
}

void multiply(const Shape& shape, const float* m, const float* q, float* p, float* scratch,
              const Execution& on, const Fold* fold) noexcept {
  // Without take_out the loops only read m.
  multiply_blocks(shape, const_cast<float*>(m), q, p, scratch, on, fold, false);
}

void multiply_and_take_out(const Shape& shape, float* m, const float* q, float* p, float* scratch,
                           const Execution& on, const Fold* fold) noexcept {
  multiply_blocks(shape, m, q, p, scratch, on, fold, true);
}

// Threads share the columns of m: each column has its own sum over all rows, in the order of rows.
void multiply_transposed(const Shape& shape, const float* m, const float* p, float* q,
                         float* scratch, const Execution& on, const Fold* fold) noexcept {
  const uint64_t stride = padded(shape.cols);
  std::memset(scratch, 0, shape.rank * stride * sizeof(float));
  const auto add_columns = [&](uint32_t, uint64_t left, uint64_t right) {
    for_blocks(
        shape, fold, on.path, 0, shape.rows, left, right, [&](uint64_t first, uint64_t rows) {
          path_table(on.path).multiply_transposed(rows, shape.cols, shape.rank,
                                                  m + first * shape.cols, p + first * shape.rank,
                                                  scratch, stride, left, right);
        });
  };
  on.workers.for_rows(shape.cols, shape.rows, kPanel, add_columns);
  from_columns(scratch, stride, shape.cols, shape.rank, q);
}

void take_out(const Shape& shape, float* m, const float* p, const float* q, float* scratch,
              const Execution& on) noexcept {
  const uint64_t stride = padded(shape.cols);
  to_columns(q, shape.cols, shape.rank, scratch, stride);
  const auto take_rows = [&](uint32_t, uint64_t begin, uint64_t end) {
    path_table(on.path).take_out(end - begin, shape.cols, shape.rank, m + begin * shape.cols,
                                 p + begin * shape.rank, scratch, stride);
  };
  on.workers.for_rows(shape.rows, shape.cols, kRowGroup, take_rows);
}

void expand(const Shape& shape, const float* p, const float* q, float scale, float* out,
            float* scratch, const Execution& on) noexcept {
  const uint64_t stride = padded(shape.cols);
  to_columns(q, shape.cols, shape.rank, scratch, stride);
  const bool streams = shape.rows * shape.cols * sizeof(float) >= kStreamedBytes;
  const auto expand_rows = [&](uint32_t, uint64_t begin, uint64_t end) {
    const Shape part{end - begin, shape.cols, shape.rank};
    const float* const left = p + begin * shape.rank;
    float* const target = out + begin * shape.cols;
    if (streams) return expand_streamed(part, left, scratch, scale, target, on.path);
    path_table(on.path).expand(part.rows, part.cols, part.rank, target, left, scratch, stride,
                               scale);
  };
  on.workers.for_rows(shape.rows, shape.cols, kRowGroup, expand_rows);
}

}  // namespace penstock::kernels::low_rank

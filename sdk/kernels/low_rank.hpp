// Products of a matrix with tall, thin factors, and the orthogonalisation of such factors.
// Power-SGD (Vogels et al., NeurIPS 2019) and its relatives are made of these operations.
//
// Matrices are row-major and contiguous: m[rows x cols], the left factor p[rows x rank], the right
// factor q[cols x rank]. The factors feed state that must have equal bits on all ranks, so every
// sum has one fixed order that depends on the shape alone: products over columns are summed in 16
// lanes (column j in lane j mod 16) that are joined by halving; products over rows are summed by
// groups of eight rows, pairwise inside a group. No code path, thread or alignment changes a bit.
//
// No function allocates. All functions are [any]; `scratch` belongs to the caller and its contents
// are undefined afterwards.
#pragma once

#include <kernels/execution.hpp>
#include <kernels/fold.hpp>

#include <cstdint>

namespace penstock::kernels::low_rank {

struct Shape {
  uint64_t rows;
  uint64_t cols;
  uint64_t rank;  // at least 1; fastest at 1, 2, 4 and 8
};

// Floats of scratch, aligned to 64 bytes, that any function below needs for this shape.
uint64_t scratch_floats(const Shape& shape) noexcept;

// The next three functions take a `fold`, whose work must be m: they compensate m first (fold.hpp),
// one block of rows after the other, so that m is read from memory once. The results have the bits
// of a separate compensate before the product.

// p = m q.
void multiply(const Shape& shape, const float* m, const float* q, float* p, float* scratch,
              const Execution& on, const Fold* fold = nullptr) noexcept;

// p = m q, then m -= p q^T, with the bits of multiply followed by take_out, in one pass over m.
void multiply_and_take_out(const Shape& shape, float* m, const float* q, float* p, float* scratch,
                           const Execution& on, const Fold* fold = nullptr) noexcept;

// q = m^T p.
void multiply_transposed(const Shape& shape, const float* m, const float* p, float* q,
                         float* scratch, const Execution& on, const Fold* fold = nullptr) noexcept;

// m -= p q^T. The subtracted numbers have the bits that expand(..., scale 1) gives.
void take_out(const Shape& shape, float* m, const float* p, const float* q, float* scratch,
              const Execution& on) noexcept;

// out = scale * (p q^T).
void expand(const Shape& shape, const float* p, const float* q, float scale, float* out,
            float* scratch, const Execution& on) noexcept;

// Floats of scratch, aligned to 64 bytes, for orthogonalise(p[rows x rank]).
uint64_t orthogonalise_scratch_floats(uint64_t rows, uint64_t rank) noexcept;

// Replaces the columns of p[rows x rank] by orthonormal columns. For every k the first k columns
// keep their span, as in Gram-Schmidt with positive lengths. Lengths differ from 1 and products of
// two columns from 0 by at most 1e-5, for any condition of the input.
//
// A column becomes zero if it holds a number that is not finite, or if projecting out the earlier
// columns leaves less than 1e-7 of it or of the longest column: the rest is then only rounding.
// Finite input of any magnitude, subnormal or near the largest float, gives finite output. Returns
// the number of zero columns.
uint64_t orthogonalise(float* p, uint64_t rows, uint64_t rank, float* scratch,
                       CodePath path) noexcept;

}  // namespace penstock::kernels::low_rank

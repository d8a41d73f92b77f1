// Products of a matrix with tall, thin factors on a device, and the orthogonalisation of such
// factors: the counterpart of ../low_rank.hpp, for ranks of 1 to 256; other ranks are refused.
// Contract of all functions: workspace.hpp.
//
// The matrix is read once, 32 neighbours at a time, for every 32 columns of the factor.
//
// expand and take_out have the CPU's bits. A product is a sum in float over n terms. Its order is
// not the CPU's, because 16 lanes would keep few threads of a device busy: the terms are cut into
// at most 64 segments, a segment is summed in 8 chains (multiply_transposed) or 32 (multiply) that
// are joined by halving, and segments are added one after the other. The order depends on the shape
// alone, so all devices and all runs give equal bits. The error of a sum is at most 2^-24 (n / 8 +
// 82) times the sum of the terms' magnitudes, and mostly far smaller. So ranks on CPUs and ranks on
// devices must not share results that follow from such a sum.
#pragma once

#include <kernels/cuda/workspace.hpp>
#include <kernels/fold.hpp>
#include <kernels/low_rank.hpp>

#include <cstdint>

namespace penstock::kernels::cuda::low_rank {

using kernels::low_rank::Shape;

inline constexpr uint64_t kMostRank = 256;

// Bytes of workspace that are enough for both products of this shape; 0 if no sum is cut, and for a
// rank that is refused.
uint64_t multiply_workspace_bytes(const Shape& shape) noexcept;

// The next two functions take a `fold`, whose work must be m: their sweep compensates m first, with
// the bits of compensate (fold.hpp). grad, work and momentum are device memory.

// p = m q.
[[nodiscard]] int32_t multiply(const Shape& shape, const float* m, const float* q, float* p,
                               Workspace workspace, void* stream,
                               const Fold* fold = nullptr) noexcept;

// q = m^T p.
[[nodiscard]] int32_t multiply_transposed(const Shape& shape, const float* m, const float* p,
                                          float* q, Workspace workspace, void* stream,
                                          const Fold* fold = nullptr) noexcept;

// m -= p q^T. The subtracted numbers have the bits that expand(..., scale 1) gives.
[[nodiscard]] int32_t take_out(const Shape& shape, float* m, const float* p, const float* q,
                               void* stream) noexcept;

// out = scale * (p q^T).
[[nodiscard]] int32_t expand(const Shape& shape, const float* p, const float* q, float scale,
                             float* out, void* stream) noexcept;

uint64_t orthogonalise_workspace_bytes(uint64_t rows, uint64_t rank) noexcept;

// Orthogonalises p with the promises of orthogonalise of ../low_rank.hpp and its rules for columns
// that are dependent or not finite, but not with its bits: sums over rows, in double, have their
// own order, which depends on rows and rank alone. *zero_columns, in device memory, receives the
// number of zero columns; it may be null. There are always seven launches; the device decides which
// launches have work. If *wanted, in device memory, is 0, no launch has work: p does not change,
// and *zero_columns is 0.
[[nodiscard]] int32_t orthogonalise(float* p, uint64_t rows, uint64_t rank, uint64_t* zero_columns,
                                    Workspace workspace, void* stream,
                                    const uint64_t* wanted = nullptr) noexcept;

}  // namespace penstock::kernels::cuda::low_rank

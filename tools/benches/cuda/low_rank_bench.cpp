// Rows of low-rank products and of orthogonalisation. A fold with beta 0 keeps the matrix equal in
// every round.
#include <penstock/memory.h>
#include <kernels/cuda/low_rank.hpp>
#include "bench.hpp"

#include <algorithm>
#include <cmath>

namespace penstock::kernels::cuda::bench {
namespace {

using low_rank::Shape;
using Floats = std::vector<float>;

constexpr uint64_t kCols = 4096;

// A matrix and its factors, on the host and on the device.
struct Case {
  Shape shape;
  const Floats* m;
  const float* on_device;
  Floats p, q;
  float *left, *right;
};
Case make_case(const Floats& x, const float* on_device, uint64_t rank) {
  const Shape shape{x.size() / kCols, kCols, rank};
  Floats p = gradient(shape.rows * rank), q = gradient(shape.cols * rank);
  float *const left = array(p), *const right = array(q);
  return {shape, &x, on_device, std::move(p), std::move(q), left, right};
}

std::string of_rank(const std::string& what, uint64_t rank) {
  return what + ", rank " + std::to_string(rank);
}
uint64_t matrix_bytes(const Shape& s) {
  return s.rows * s.cols * sizeof(float);
}
uint64_t factor_bytes(const Shape& s) {
  return (s.rows + s.cols) * s.rank * sizeof(float);
}

// Compares a few entries of a product with exact sums.
bool near_exact(const Case& c, bool transposed, const Floats& got) {
  const Shape& s = c.shape;
  const uint64_t terms = transposed ? s.rows : s.cols;
  const uint64_t results = transposed ? s.cols : s.rows;
  const Floats& factor = transposed ? c.p : c.q;
  for (uint64_t r = 0; r < results; r += results / 7 + 1)
    for (uint64_t k = 0; k < s.rank; ++k) {
      double sum = 0, magnitudes = 0;
      for (uint64_t t = 0; t < terms; ++t) {
        const uint64_t entry = transposed ? t * s.cols + r : r * s.cols + t;
        const double term = double{(*c.m)[entry]} * double{factor[t * s.rank + k]};
        sum += term;
        magnitudes += std::fabs(term);
      }
      const double most = 0x1p-24 * (static_cast<double>(terms) / 8 + 82) * magnitudes;
      if (!(std::fabs(double{got[r * s.rank + k]} - sum) <= most)) return false;
    }
  return true;
}

void add_products(std::vector<Row>& rows, const Case& c) {
  const Shape s = c.shape;
  const Workspace work = workspace(low_rank::multiply_workspace_bytes(s));
  const uint64_t sweeps = (s.rank + 31) / 32;
  const uint64_t bytes = sweeps * matrix_bytes(s) + factor_bytes(s);
  auto* const p = array<float>(s.rows * s.rank);
  auto* const q = array<float>(s.cols * s.rank);
  const float *const m = c.on_device, *const left = c.left, *const right = c.right;
  rows.push_back(
      {of_rank("left factor = matrix * right", s.rank), bytes,
       [=](cudaStream_t stream) { return low_rank::multiply(s, m, right, p, work, stream); },
       [=] { return near_exact(c, false, fetch(p, s.rows * s.rank)); }});
  rows.push_back({of_rank("right factor = transposed matrix * left", s.rank), bytes,
                  [=](cudaStream_t stream) {
                    return low_rank::multiply_transposed(s, m, left, q, work, stream);
                  },
                  [=] { return near_exact(c, true, fetch(q, s.cols * s.rank)); }});
}

// With beta 0 and gamma 1 the matrix becomes the gradient, for any earlier values.
void add_folded(std::vector<Row>& rows, const Case& c) {
  const Shape s = c.shape;
  const Workspace work = workspace(low_rank::multiply_workspace_bytes(s));
  auto* const p = array<float>(s.rows * s.rank);
  auto* const target = array(Floats(s.rows * s.cols, 0.0f));
  const float* const right = c.right;
  const Fold fold{PENSTOCK_FORM_AFFINE, 0, 1, 1, c.on_device, target, nullptr};
  rows.push_back({of_rank("residual and left factor in one pass", s.rank),
                  3 * matrix_bytes(s) + factor_bytes(s),
                  [=](cudaStream_t stream) {
                    return low_rank::multiply(s, target, right, p, work, stream, &fold);
                  },
                  [=] { return near_exact(c, false, fetch(p, s.rows * s.rank)); }});
}

// Compares the first entries with the CPU.
void add_expansion(std::vector<Row>& rows, const Case& c, float* out) {
  const Shape s = c.shape;
  const float *const left = c.left, *const right = c.right;
  rows.push_back(
      {of_rank("matrix from its factors", s.rank), matrix_bytes(s) + factor_bytes(s),
       [=](cudaStream_t stream) { return low_rank::expand(s, left, right, 0.5f, out, stream); },
       [=] {
         const Shape few{std::min<uint64_t>(s.rows, 8), s.cols, s.rank};
         Floats memory(kernels::low_rank::scratch_floats(few) + 16);
         const auto at = reinterpret_cast<uintptr_t>(memory.data());
         Floats expected(few.rows * few.cols);
         kernels::low_rank::expand(few, c.p.data(), c.q.data(), 0.5f, expected.data(),
                                   reinterpret_cast<float*>((at + 63) / 64 * 64),
                                   widest_code_path());
         return fetch(out, few.rows * few.cols) == expected;
       }});
  auto* const target = array(*c.m);
  rows.push_back(
      {of_rank("factors' product taken out", s.rank), 2 * matrix_bytes(s) + factor_bytes(s),
       [=](cudaStream_t stream) { return low_rank::take_out(s, target, left, right, stream); },
       [=] {
         const float expanded = 2 * fetch(out, 1)[0];
         return fetch(target, 1)[0] == (*c.m)[0] - expanded;
       }});
}

// After the first run the columns are orthonormal. So one Cholesky-QR is enough, as in most steps.
void add_orthogonalise(std::vector<Row>& rows, const Case& c) {
  const uint64_t n = c.shape.rows, rank = c.shape.rank;
  auto* const p = array(c.p);
  auto* const zeros = array<uint64_t>(1);
  const Workspace work = workspace(low_rank::orthogonalise_workspace_bytes(n, rank));
  rows.push_back({of_rank("left factor made orthonormal", rank), 2 * n * rank * sizeof(float),
                  [=](cudaStream_t stream) {
                    return low_rank::orthogonalise(p, n, rank, zeros, work, stream);
                  },
                  [=] {
                    const Floats got = fetch(p, n * rank);
                    double length = 0;
                    for (uint64_t i = 0; i < n; ++i)
                      length += double{got[i * rank]} * double{got[i * rank]};
                    return fetch(zeros, 1)[0] == 0 && std::fabs(length - 1) <= 1e-5;
                  }});
}

}  // namespace

void add_low_rank(std::vector<Row>& rows, const std::vector<float>& x) {
  const float* const on_device = array(x);
  auto* const out = array<float>(x.size());
  for (const uint64_t rank : {1, 4, 32}) {
    const Case c = make_case(x, on_device, rank);
    add_products(rows, c);
    if (rank == 4) add_folded(rows, c);
    if (rank != 1) add_expansion(rows, c, out);
    add_orthogonalise(rows, c);
  }
}

}  // namespace penstock::kernels::cuda::bench

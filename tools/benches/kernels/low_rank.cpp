// Power-SGD's step on one rank and the orthogonalisation of factors: the functions behind
// low_rank.py.
#include <penstock/memory.h>
#include <kernels/low_rank.hpp>

#include <algorithm>

namespace kernels = penstock::kernels;
namespace low_rank = penstock::kernels::low_rank;

#define BENCH extern "C" __attribute__((visibility("default")))

BENCH uint64_t bench_low_rank_scratch(uint64_t rows, uint64_t cols, uint64_t rank) {
  return std::max(low_rank::scratch_floats({rows, cols, rank}),
                  low_rank::orthogonalise_scratch_floats(std::max(rows, cols), rank));
}

// work += grad; p = orthogonal(work q); q = work^T p; work -= p q^T; out = p q^T; q orthogonal for
// the next step. These are encode and decode of both rounds in a world of one rank.
BENCH void bench_power_sgd(const float* grad, float* work, float* out, float* p, float* q,
                           uint64_t rows, uint64_t cols, uint64_t rank, float* scratch) {
  const low_rank::Shape shape{rows, cols, rank};
  const kernels::CodePath path = kernels::widest_code_path();
  const kernels::Fold fold{PENSTOCK_FORM_AFFINE, 1, 1, 1, grad, work, nullptr};
  low_rank::multiply(shape, work, q, p, scratch, path, &fold);
  low_rank::orthogonalise(p, rows, rank, scratch, path);
  low_rank::multiply_transposed(shape, work, p, q, scratch, path);
  low_rank::take_out(shape, work, p, q, scratch, path);
  low_rank::expand(shape, p, q, 1, out, scratch, path);
  low_rank::orthogonalise(q, cols, rank, scratch, path);
}

BENCH uint64_t bench_orthogonalise(float* p, uint64_t rows, uint64_t rank, float* scratch) {
  return low_rank::orthogonalise(p, rows, rank, scratch, kernels::widest_code_path());
}

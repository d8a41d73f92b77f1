// Kernels on one thread and on several threads: the functions behind threads.py. The workers are
// the runtime's.
#include "core/base/workers.hpp"

#include <kernels/low_rank.hpp>
#include <kernels/norm.hpp>
#include <kernels/rows.hpp>
#include <kernels/stochastic.hpp>

namespace kernels = penstock::kernels;
namespace low_rank = penstock::kernels::low_rank;

#define BENCH extern "C" __attribute__((visibility("default")))

namespace {

// The workers end before the library is unloaded.
penstock::Workers& workers() {
  static penstock::Workers all;
  return all;
}

kernels::Execution execution(bool threads) {
  const kernels::Workers with(threads ? workers().table() : nullptr);
  return {kernels::widest_code_path(), with};
}

}  // namespace

BENCH void bench_threads_resize(uint32_t count) {
  workers().resize(count);
}

// The four products of a step of Power-SGD.
BENCH void bench_threads_products(float* work, float* out, float* p, float* q, uint64_t rows,
                                  uint64_t cols, uint64_t rank, float* scratch, bool threads) {
  const low_rank::Shape shape{rows, cols, rank};
  const kernels::Execution on = execution(threads);
  low_rank::multiply(shape, work, q, p, scratch, on);
  low_rank::multiply_transposed(shape, work, p, q, scratch, on);
  low_rank::take_out(shape, work, p, q, scratch, on);
  low_rank::expand(shape, p, q, 1, out, scratch, on);
}

BENCH uint64_t bench_threads_rows_scratch(uint64_t width) {
  return kernels::select_rows_scratch_bytes(width, workers().count());
}

BENCH void bench_threads_rows(const float* x, uint64_t rows, uint64_t width, uint64_t k,
                              uint32_t* indices, void* scratch, uint64_t scratch_bytes,
                              bool threads) {
  kernels::select_rows(x, rows, width, k, indices, nullptr, {scratch, scratch_bytes},
                       execution(threads));
}

// QSGD with 8 bits and the largest magnitude of each 512 elements, as in the compressor, but not
// packed.
BENCH void bench_threads_qsgd(float* x, uint64_t n, float* steps, uint8_t* codes, bool threads) {
  constexpr uint64_t kBucket = 512;
  const kernels::Execution on = execution(threads);
  const auto encode = [&](uint32_t, uint64_t first, uint64_t last) {
    for (uint64_t b = first; b < last; ++b) {
      float* const bucket = x + b * kBucket;
      steps[b] = kernels::grid_step(kernels::largest_magnitude(bucket, kBucket, on.path), 127);
      kernels::round_to_levels(bucket, kBucket, {steps[b], 127}, {1}, b * kBucket, false,
                               codes + b * kBucket, on.path);
    }
  };
  on.workers.for_rows(n / kBucket, kBucket, 1, encode);
}

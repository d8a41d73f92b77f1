// Selection, alone and in one sweep with a memory's compensate: the functions behind selection.py.
#include <penstock/memory.h>
#include <kernels/rows.hpp>
#include <kernels/select.hpp>
#include <kernels/statistics.hpp>

namespace kernels = penstock::kernels;

#define BENCH extern "C" __attribute__((visibility("default")))

namespace {
kernels::CodePath fastest() {
  return kernels::select_code_path("");
}
}  // namespace

BENCH uint64_t bench_select_scratch(uint64_t n, uint64_t k) {
  return kernels::select_scratch_bytes(n, k);
}

BENCH void bench_select_largest(const float* x, uint64_t n, uint64_t k, uint32_t* indices,
                                float* values, void* scratch, uint64_t scratch_bytes) {
  kernels::select_largest(x, n, k, indices, values, {scratch, scratch_bytes}, fastest());
}

BENCH uint64_t bench_select_rows_scratch(uint64_t width) {
  return kernels::select_rows_scratch_bytes(width);
}

BENCH void bench_select_rows(const float* x, uint64_t rows, uint64_t width, uint64_t k,
                             uint32_t* indices, float* values, void* scratch,
                             uint64_t scratch_bytes) {
  kernels::select_rows(x, rows, width, k, indices, values, {scratch, scratch_bytes}, fastest());
}

// work = work + grad, or with u: u = m u + grad, work = work + u. The k largest entries of work are
// sent and removed from u. threshold >= 0: instead the entries above it are sent, at most k.
// Returns the number of sent entries.
BENCH uint64_t bench_fold(const float* grad, float* work, float* u, float m, uint64_t n,
                          float threshold, uint64_t k, uint32_t* indices, float* values,
                          void* scratch, uint64_t scratch_bytes) {
  const bool momentum = u != nullptr;
  const kernels::Fold fold{
      momentum ? uint32_t{PENSTOCK_FORM_HEAVY_BALL} : uint32_t{PENSTOCK_FORM_AFFINE},
      momentum ? m : 1,
      1,
      1,
      grad,
      work,
      u};
  kernels::SelectSegment segment{work, n, indices, values, 0, &fold};
  const kernels::SelectScratch room{scratch, scratch_bytes};
  if (threshold >= 0)
    kernels::select_above(segment, threshold, k, room, fastest());
  else
    kernels::select_largest({&segment, 1}, k, room, fastest());
  for (uint64_t j = 0; j < segment.count; ++j) work[indices[j]] = 0;
  if (momentum)
    for (uint64_t j = 0; j < segment.count; ++j) u[indices[j]] = 0;
  return segment.count;
}

// Sums, largest magnitude and the counts of `n_thresholds` thresholds in one pass.
BENCH void bench_statistics(const float* x, uint64_t n, const float* thresholds,
                            uint64_t n_thresholds, uint64_t* counts, int logs, double* sums) {
  const kernels::Statistics found = kernels::statistics(
      x, n, {.thresholds = {thresholds, n_thresholds}, .counts = counts, .logs = logs != 0},
      fastest());
  sums[0] = found.sum_of_magnitudes;
  sums[1] = found.sum_of_squares;
  sums[2] = found.sum_of_logs;
}

// The terms of the sums of reduce.hpp, and the counts of several thresholds.
#include <kernels/cuda/reduce.cuh>
#include <kernels/cuda/reduce.hpp>
#include <kernels/cuda/reduce_terms.cuh>
#include <kernels/element/keys.hpp>
#include <kernels/element/rounding.hpp>

namespace penstock::kernels::cuda {
namespace {

struct Square : PlainTerm {
  using Sum = double;
  __device__ void add(double& sum, float x) const { sum += double{x} * double{x}; }
  __device__ void join(double& sum, double other) const { sum += other; }
};

struct Magnitude : PlainTerm {
  using Sum = double;
  __device__ void add(double& sum, float x) const { sum += double{magnitude(x)}; }
  __device__ void join(double& sum, double other) const { sum += other; }
};

// The larger magnitude. Positive floats have the order of their bits, so a NaN is larger than all
// numbers, as on the CPU.
__device__ inline float larger(float a, float b) {
  return std::bit_cast<uint32_t>(a) < std::bit_cast<uint32_t>(b) ? b : a;
}

struct Largest : PlainTerm {
  using Sum = float;
  __device__ void add(float& sum, float x) const { sum = larger(sum, magnitude(x)); }
  __device__ void join(float& sum, float other) const { sum = larger(sum, other); }
};

struct RangeOf : PlainTerm {
  using Sum = ValueRange;
  __device__ void add(ValueRange& range, float x) const {
    range.low = x < range.low ? x : range.low;
    range.high = x > range.high ? x : range.high;
  }
  __device__ void join(ValueRange& range, const ValueRange& other) const {
    range.low = other.low < range.low ? other.low : range.low;
    range.high = other.high > range.high ? other.high : range.high;
  }
};

struct MomentsOf : PlainTerm {
  using Sum = Moments;
  __device__ void add(Moments& sum, float x) const {
    sum.sum += double{x};
    sum.sum_of_squares += double{x} * double{x};
    sum.largest = larger(sum.largest, magnitude(x));
  }
  __device__ void join(Moments& sum, const Moments& other) const {
    sum.sum += other.sum;
    sum.sum_of_squares += other.sum_of_squares;
    sum.largest = larger(sum.largest, other.largest);
  }
};

struct BySign : PlainTerm {
  using Sum = SumsBySign;
  __device__ SumsBySign of(float x) const {
    const double wide{x};
    const bool is_above = x > 0.0f, is_below = x < 0.0f;
    return {is_above ? wide : 0.0, is_below ? wide : 0.0, is_above ? 1u : 0u, is_below ? 1u : 0u};
  }
  __device__ void add(SumsBySign& sum, float x) const {
    if (x > 0.0f) {
      sum.positive += double{x};
      ++sum.n_positive;
    } else if (x < 0.0f) {
      sum.negative += double{x};
      ++sum.n_negative;
    }
  }
  __device__ void join(SumsBySign& sum, const SumsBySign& other) const {
    sum.positive += other.positive;
    sum.negative += other.negative;
    sum.n_positive += other.n_positive;
    sum.n_negative += other.n_negative;
  }
};

// The sum of all tiles needs more bytes than the result; it lies first in the workspace.
constexpr uint64_t kFirstPlace = 64;
static_assert(sizeof(StatisticsOf::Sum) <= kFirstPlace);

__global__ void __launch_bounds__(kWarp)
    keep_statistics(const StatisticsOf::Sum* sum, Statistics* result) {
  if (threadIdx.x == 0) *result = *sum;
}

constexpr uint32_t kThresholdsAtOnce = 16;

// Adds the number of entries of a tile that reach each key. For a whole tile there are no checks
// for the end, because nvcc has few loads in flight with conditions.
template <uint32_t kMost, bool kWhole>
__device__ void count_in_tile(const float* tile, uint32_t size, const uint32_t (&keys)[kMost],
                              uint32_t (&passed)[kMost]) {
#pragma unroll 1
  for (uint32_t i = threadIdx.x; i < size; i += kSumThreads * kSumLoads) {
    float in[kSumLoads];
#pragma unroll
    for (uint32_t l = 0; l < kSumLoads; ++l)
      in[l] = kWhole || i + l * kSumThreads < size ? tile[i + l * kSumThreads] : 0.0f;
#pragma unroll
    for (uint32_t l = 0; l < kSumLoads; ++l) {
      const uint32_t key = magnitude_key(in[l]);  // 0 for a zero; thresholds have at least 1
#pragma unroll
      for (uint32_t j = 0; j < kMost; ++j) passed[j] += key >= keys[j] ? 1 : 0;
    }
  }
}
static_assert(kSumTile % (kSumThreads * kSumLoads) == 0);

// Each thread counts for all thresholds in registers; whole numbers may be added in any order.
// kMost is the number of thresholds or slightly more, because every element is compared for each of
// the kMost places.
template <uint32_t kMost>
__global__ void __launch_bounds__(kSumThreads)
    count_reaching(const float* x, uint64_t n, const float* thresholds, uint32_t n_thresholds,
                   uint64_t* counts) {
  __shared__ uint32_t found[kMost];
  if (threadIdx.x < kMost) found[threadIdx.x] = 0;
  uint32_t keys[kMost], passed[kMost];
  uint32_t lowest = kInfinityKey + 1;
#pragma unroll
  for (uint32_t j = 0; j < kMost; ++j) {
    keys[j] = j < n_thresholds ? threshold_key(thresholds[j]) : kInfinityKey + 1;
    lowest = keys[j] < lowest ? keys[j] : lowest;
    passed[j] = 0;
  }
  if (lowest > kInfinityKey) return;  // all thresholds are NaN: nothing is read
  const uint64_t begin = uint64_t{blockIdx.x} * kSumTile;
  const auto size = static_cast<uint32_t>(n - begin < kSumTile ? n - begin : kSumTile);
  if (size == kSumTile)
    count_in_tile<kMost, true>(x + begin, kSumTile, keys, passed);
  else
    count_in_tile<kMost, false>(x + begin, size, keys, passed);
  __syncthreads();
#pragma unroll
  for (uint32_t j = 0; j < kMost; ++j) {
    const uint32_t of_warp = warp_sum(passed[j]);
    if (lane() == 0 && of_warp != 0) atomicAdd(&found[j], of_warp);
  }
  __syncthreads();
  if (threadIdx.x < n_thresholds && found[threadIdx.x] != 0)
    atomicAdd(reinterpret_cast<Long*>(counts + threadIdx.x), Long{found[threadIdx.x]});
}

// Calls use.template operator()<kMost>() for n of at most kThresholdsAtOnce.
template <typename Use>
void with_most(uint64_t n, const Use& use) {
  if (n <= 4)
    use.template operator()<4>();
  else if (n <= 8)
    use.template operator()<8>();
  else
    use.template operator()<kThresholdsAtOnce>();
}

}  // namespace

uint64_t reduce_workspace_bytes(uint64_t n, uint64_t run) noexcept {
  const SumPlan plan = plan_sum(n, run);
  if (plan.tiles_per_run == 1) return kFirstPlace;                  // sums of tiles are the results
  return kFirstPlace + plan.n_tiles() * sizeof(StatisticsOf::Sum);  // the largest of all sums
}

int32_t sum_of_squares(const float* x, uint64_t n, double* result, Workspace workspace,
                       void* stream) noexcept {
  return reduce(Square{}, x, n, 0, result, workspace, stream);
}

int32_t sum_of_magnitudes(const float* x, uint64_t n, double* result, Workspace workspace,
                          void* stream) noexcept {
  return reduce(Magnitude{}, x, n, 0, result, workspace, stream);
}

int32_t sums_of_magnitudes(const float* x, uint64_t n, uint64_t run, double* results,
                           Workspace workspace, void* stream) noexcept {
  return reduce_runs(Magnitude{}, x, n, run, results, workspace, stream);
}

int32_t moments(const float* values, uint64_t n, uint64_t run, Moments* results,
                Workspace workspace, void* stream) noexcept {
  return reduce_runs(MomentsOf{}, values, n, run, results, workspace, stream);
}

int32_t largest_magnitude(const float* values, uint64_t n, uint64_t run, float* results,
                          Workspace workspace, void* stream) noexcept {
  return reduce_runs(Largest{}, values, n, run, results, workspace, stream);
}

int32_t value_ranges(const float* values, uint64_t n, uint64_t run, ValueRange* results,
                     Workspace workspace, void* stream) noexcept {
  return reduce_runs(RangeOf{}, values, n, run, results, workspace, stream);
}

int32_t sums_by_sign(const float* values, uint64_t n, uint64_t run, SumsBySign* results,
                     Workspace workspace, void* stream) noexcept {
  return reduce_runs(BySign{}, values, n, run, results, workspace, stream);
}

int32_t exceedances(const float* x, uint64_t n, const float* threshold, Exceedances* result,
                    Workspace workspace, void* stream) noexcept {
  if (threshold == nullptr) return cudaErrorInvalidValue;
  return reduce(Exceeding{threshold, 0}, x, n, 0, result, workspace, stream);
}

int32_t statistics(const float* x, uint64_t n, bool logs, Statistics* result, Workspace workspace,
                   void* stream) noexcept {
  using Sum = StatisticsOf::Sum;
  if (result == nullptr || workspace.data == nullptr || !aligned(workspace.data, 64) ||
      workspace.bytes < reduce_workspace_bytes(n, 0))
    return cudaErrorInvalidValue;
  auto* const sum = static_cast<Sum*>(workspace.data);
  StatisticsOf term;
  term.logs = logs;
  const int32_t error = reduce(
      term, x, n, 0, sum,
      {static_cast<char*>(workspace.data) + kFirstPlace, workspace.bytes - kFirstPlace}, stream);
  if (error != cudaSuccess) return error;
  Queue queue(stream);
  queue.run<keep_statistics>(1, kWarp, sum, result);
  return queue.error();
}

int32_t count_above(const float* x, uint64_t n, const float* thresholds, uint64_t n_thresholds,
                    uint64_t* counts, void* stream) noexcept {
  if (n_thresholds == 0) return cudaSuccess;
  if (thresholds == nullptr || counts == nullptr || (n > 0 && x == nullptr))
    return cudaErrorInvalidValue;
  Queue queue(stream);
  queue.zero(counts, n_thresholds * sizeof(uint64_t));
  for (uint64_t first = 0; first < n_thresholds; first += kThresholdsAtOnce) {
    const uint64_t left = n_thresholds - first;
    const auto some = static_cast<uint32_t>(left < kThresholdsAtOnce ? left : kThresholdsAtOnce);
    with_most(some, [&]<uint32_t kMost>() {
      queue.run<count_reaching<kMost>>(pieces(n, kSumTile), kSumThreads, x, n, thresholds + first,
                                       some, counts + first);
    });
  }
  return queue.error();
}

}  // namespace penstock::kernels::cuda

// Computes the numbers for which signs stand, and subtracts them; see sign.hpp.
#include <kernels/cuda/elements.cuh>
#include <kernels/cuda/sign_numbers.cuh>

namespace penstock::kernels::cuda {
namespace {

__global__ void __launch_bounds__(kWarp)
    divide_sum(const double* sum, uint64_t numel, float* number) {
  if (threadIdx.x == 0)
    *number = static_cast<float>(*sum / static_cast<double>(numel > 0 ? numel : 1));
}

__device__ float mean_of(double sum, uint64_t count) {
  return count == 0 ? 0.0f : static_cast<float>(sum / static_cast<double>(count));
}

struct MeansBySign {
  using In = SumsBySign;
  using Facts = NoFacts;
  const SumsBySign* sums;
  float* numbers;
  __device__ NoFacts facts(uint64_t) const { return {}; }
  __device__ SumsBySign load(uint64_t r) const { return sums[r]; }
  __device__ void store(uint64_t r, const SumsBySign& of_run, NoFacts) const {
    numbers[2 * r] = mean_of(of_run.positive, of_run.n_positive);
    numbers[2 * r + 1] = mean_of(of_run.negative, of_run.n_negative);
  }
};

__device__ float without(float x, const SidesOfZero& numbers) {
  return x - (x > 0.0f ? numbers.plus : x < 0.0f ? numbers.minus : 0.0f);
}

struct TakeOutBySign {
  using In = float;
  using Facts = SidesOfZero;
  float* values;
  const float* numbers;
  bool mirrored;
  __device__ SidesOfZero facts(uint64_t run) const {
    return numbers_of_run(numbers, mirrored, run);
  }
  __device__ float load(uint64_t i) const { return values[i]; }
  __device__ void store(uint64_t i, float x, const SidesOfZero& of_run) const {
    values[i] = without(x, of_run);
  }
};

struct TakeOutSigns {
  using In = float;
  using Facts = SidesOfZero;
  float* values;
  float one;
  __device__ SidesOfZero facts(uint64_t) const { return {one, -one}; }
  __device__ float load(uint64_t i) const { return values[i]; }
  __device__ void store(uint64_t i, float x, const SidesOfZero& ones) const {
    values[i] = without(x, ones);
  }
};

}  // namespace

int32_t mean_magnitude(const double* sum, uint64_t numel, float* number, void* stream) noexcept {
  if (sum == nullptr || number == nullptr) return cudaErrorInvalidValue;
  Queue queue(stream);
  queue.run<divide_sum>(1, kWarp, sum, numel, number);
  return queue.error();
}

int32_t means_by_sign(const SumsBySign* sums, uint64_t n_runs, float* numbers,
                      void* stream) noexcept {
  if (n_runs > 0 && (sums == nullptr || numbers == nullptr)) return cudaErrorInvalidValue;
  Queue queue(stream);
  each_element(queue, MeansBySign{sums, numbers}, n_runs);
  return queue.error();
}

int32_t take_out_by_sign(float* values, uint64_t numel, SignRuns runs, const float* numbers,
                         void* stream) noexcept {
  if (!legal(runs) || (numel > 0 && (values == nullptr || numbers == nullptr)))
    return cudaErrorInvalidValue;
  Queue queue(stream);
  each_element(queue, TakeOutBySign{values, numbers, runs.mirrored}, numel, runs.run);
  return queue.error();
}

int32_t take_out_signs(float* values, uint64_t numel, float one, void* stream) noexcept {
  if (numel > 0 && values == nullptr) return cudaErrorInvalidValue;
  Queue queue(stream);
  each_element(queue, TakeOutSigns{values, one}, numel);
  return queue.error();
}

}  // namespace penstock::kernels::cuda

// See average.hpp.
#include <kernels/cuda/average.hpp>
#include <kernels/cuda/elements.cuh>

namespace penstock::kernels::cuda {
namespace {

struct Old {
  float average;
  float grad;
};

struct Advance {
  using In = Old;
  using Facts = NoFacts;
  RunningAverage of;
  __device__ NoFacts facts(uint64_t) const { return {}; }
  __device__ Old load(uint64_t i) const { return {of.average[i], of.grad[i]}; }
  __device__ void store(uint64_t i, const Old& old, NoFacts) const {
    const float average = of.old_share * old.average + of.new_share * (old.grad * of.unscale);
    of.average[i] = average;
    of.copy[i] = average;
  }
};

}  // namespace

int32_t advance_average(const RunningAverage& of, uint64_t n, void* stream) noexcept {
  if (n > 0 && (of.average == nullptr || of.grad == nullptr || of.copy == nullptr))
    return cudaErrorInvalidValue;
  Queue queue(stream);
  each_element(queue, Advance{of}, n);
  return queue.error();
}

}  // namespace penstock::kernels::cuda

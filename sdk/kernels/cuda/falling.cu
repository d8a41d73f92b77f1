// See falling.hpp.
#include <kernels/cuda/falling.hpp>
#include <kernels/cuda/queue.hpp>
#include <kernels/cuda/reduce.hpp>
#include <kernels/cuda/tuning.hpp>

namespace penstock::kernels::cuda {
namespace {

__global__ void __launch_bounds__(kWarp) write_falls(float factor, uint32_t falls, Falling* s) {
  if (threadIdx.x != 0) return;
  for (uint32_t j = 0; j < falls; ++j) s->thresholds[j + 1] = s->thresholds[j] * factor;
}

__global__ void __launch_bounds__(kWarp) find_enough(uint32_t falls, double enough, Falling* s) {
  if (threadIdx.x != 0) return;
  uint32_t j = 0;
  while (j < falls && s->thresholds[j] != 0 && static_cast<double>(s->counts[j]) < enough) ++j;
  s->found = s->thresholds[j];
}

}  // namespace

int32_t fall(const float* x, uint64_t n, float factor, uint32_t falls, double enough, Falling* s,
             void* stream) noexcept {
  if (falls > kMostFalls || s == nullptr) return cudaErrorInvalidValue;
  Queue queue(stream);
  queue.run<write_falls>(1, kWarp, factor, falls, s);
  if (queue.error() != 0) return queue.error();
  const int32_t error = count_above(x, n, s->thresholds, falls + 1, s->counts, stream);
  if (error != 0) return error;
  queue.run<find_enough>(1, kWarp, falls, enough, s);
  return queue.error();
}

}  // namespace penstock::kernels::cuda

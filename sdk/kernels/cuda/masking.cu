// See masking.hpp.
#include <kernels/cuda/block.cuh>
#include <kernels/cuda/masking.hpp>
#include <kernels/cuda/queue.hpp>

namespace penstock::kernels::cuda {
namespace {

constexpr uint32_t kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    clear_entries(float* momentum, const uint32_t* indices, uint64_t count) {
  const uint64_t j = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (j < count) momentum[indices[j]] = 0;
}

}  // namespace

int32_t mask_entries(float* momentum, uint64_t n, const uint32_t* indices, uint64_t count,
                     void* stream) noexcept {
  if (count > n) return cudaErrorInvalidValue;
  Queue queue(stream);
  queue.run<clear_entries>(pieces(count, kThreads), kThreads, momentum, indices, count);
  return queue.error();
}

}  // namespace penstock::kernels::cuda

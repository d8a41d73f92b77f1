// See element_kernels.hpp.
#include "core/device/cuda/element_kernels.hpp"

#include <cuda_runtime.h>

#include <algorithm>

namespace penstock::device_cuda {
namespace {

constexpr uint32_t kExponent = 0x7f800000u;  // full where a float32 is NaN or infinite
constexpr uint32_t kQuietNan = 0x7fc00000u;

constexpr unsigned kThreads = 256;
constexpr uint64_t kPerThread = 8;
constexpr uint64_t kMostBlocks = 2048;  // a few for each multiprocessor of the largest

__device__ uint64_t first_element() {
  return uint64_t{blockIdx.x} * kThreads + threadIdx.x;
}
__device__ uint64_t stride() {
  return uint64_t{gridDim.x} * kThreads;
}

// All that write, write the same.
__global__ void look_for_nonfinite(const uint32_t* values, uint64_t count, uint32_t* found) {
  bool any = false;
  for (uint64_t i = first_element(); i < count; i += stride())
    any = any || (values[i] & kExponent) == kExponent;
  if (any) *found = 1;
}

__global__ void write_nan(uint32_t* values, uint64_t count) {
  for (uint64_t i = first_element(); i < count; i += stride()) values[i] = kQuietNan;
}

__global__ void multiply(float* values, uint64_t count, float factor) {
  for (uint64_t i = first_element(); i < count; i += stride()) values[i] *= factor;
}

template <typename... Parameters, typename... Arguments>
cudaError_t queue(void (*kernel)(Parameters...), uint64_t count, cudaStream_t stream,
                  Arguments... arguments) {
  if (count == 0) return cudaSuccess;
  const uint64_t blocks = (count - 1) / (kThreads * kPerThread) + 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(std::min(blocks, kMostBlocks)));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace

cudaError_t find_nonfinite(const float* values, uint64_t count, uint32_t* found,
                           cudaStream_t stream) {
  return queue(look_for_nonfinite, count, stream, reinterpret_cast<const uint32_t*>(values), count,
               found);
}

cudaError_t fill_nan(float* values, uint64_t count, cudaStream_t stream) {
  return queue(write_nan, count, stream, reinterpret_cast<uint32_t*>(values), count);
}

cudaError_t scale(float* values, uint64_t count, float factor, cudaStream_t stream) {
  return queue(multiply, count, stream, values, count, factor);
}

}  // namespace penstock::device_cuda

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

uint64_t blocks_for(uint64_t count) {
  return std::min((count + kThreads * kPerThread - 1) / (kThreads * kPerThread), kMostBlocks);
}

// Arrays to look at, by value, so that they travel with the launch. Their blocks are numbered
// through: those of the first array, then those of the second.
struct LookedAt {
  static constexpr uint32_t kMost = 128;

  void add(const penstock_device_values& array) {
    all[n] = array;
    first_blocks[n++] = n_blocks;
    n_blocks += static_cast<uint32_t>(blocks_for(array.count));
  }

  penstock_device_values all[kMost];
  uint32_t first_blocks[kMost];
  uint32_t n = 0;
  uint32_t n_blocks = 0;
};
static_assert(sizeof(LookedAt) <= 4096, "a launch takes no more");

// Whose a block is: the last that begins there or before, since one without any begins where the
// next does.
__device__ uint32_t array_of_block(const LookedAt& arrays) {
  uint32_t begin = 0, end = arrays.n;
  while (end - begin > 1) {
    const uint32_t middle = begin + (end - begin) / 2;
    if (arrays.first_blocks[middle] <= blockIdx.x)
      begin = middle;
    else
      end = middle;
  }
  return begin;
}

// All that write, write the same.
__global__ void look_for_nonfinite(LookedAt arrays) {
  const uint32_t which = array_of_block(arrays);
  const auto* const values = reinterpret_cast<const uint32_t*>(arrays.all[which].values);
  const uint64_t count = arrays.all[which].count;
  const uint32_t first = arrays.first_blocks[which];
  const uint32_t end = which + 1 < arrays.n ? arrays.first_blocks[which + 1] : arrays.n_blocks;
  bool any = false;
  for (uint64_t i = uint64_t{blockIdx.x - first} * kThreads + threadIdx.x; i < count;
       i += uint64_t{end - first} * kThreads)
    any = any || (values[i] & kExponent) == kExponent;
  if (any) *arrays.all[which].found = 1;
}

__global__ void write_nan(uint32_t* values, uint64_t count) {
  for (uint64_t i = first_element(); i < count; i += stride()) values[i] = kQuietNan;
}

__global__ void multiply(float* values, uint64_t count, float factor) {
  for (uint64_t i = first_element(); i < count; i += stride()) values[i] *= factor;
}

template <typename... Parameters, typename... Arguments>
cudaError_t queue(void (*kernel)(Parameters...), uint64_t blocks, cudaStream_t stream,
                  const Arguments&... arguments) {
  if (blocks == 0) return cudaSuccess;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace

cudaError_t find_nonfinite(std::span<const penstock_device_values> arrays, cudaStream_t stream) {
  while (!arrays.empty()) {
    const auto some = arrays.first(std::min<uint64_t>(arrays.size(), LookedAt::kMost));
    LookedAt looked_at;
    for (const penstock_device_values& array : some) looked_at.add(array);
    const cudaError_t error = queue(look_for_nonfinite, looked_at.n_blocks, stream, looked_at);
    if (error != cudaSuccess) return error;
    arrays = arrays.subspan(some.size());
  }
  return cudaSuccess;
}

cudaError_t fill_nan(float* values, uint64_t count, cudaStream_t stream) {
  return queue(write_nan, blocks_for(count), stream, reinterpret_cast<uint32_t*>(values), count);
}

cudaError_t scale(float* values, uint64_t count, float factor, cudaStream_t stream) {
  return queue(multiply, blocks_for(count), stream, values, count, factor);
}

}  // namespace penstock::device_cuda

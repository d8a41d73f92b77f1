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

// As many lists as go into the parameters of a kernel.
struct IndexLists {
  static constexpr unsigned kMost = 64;
  penstock_index_list lists[kMost];
};

// Each list has so many blocks behind each other.
__global__ void look_for_wrong_indices(IndexLists of, unsigned blocks_each) {
  const penstock_index_list& list = of.lists[blockIdx.x / blocks_each];
  const uint64_t first = uint64_t{blockIdx.x % blocks_each} * kThreads + threadIdx.x;
  bool any = false;
  for (uint64_t i = first; i < list.count; i += uint64_t{blocks_each} * kThreads) {
    const uint32_t index = list.indices[i];
    any = any || index >= list.below || (i != 0 && index <= list.indices[i - 1]);
  }
  if (any) *list.wrong = 1;
}

unsigned blocks_for(uint64_t count) {
  return static_cast<unsigned>(std::min((count - 1) / (kThreads * kPerThread) + 1, kMostBlocks));
}

template <typename... Parameters, typename... Arguments>
cudaError_t queue(void (*kernel)(Parameters...), uint64_t count, cudaStream_t stream,
                  Arguments... arguments) {
  if (count == 0) return cudaSuccess;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks_for(count));
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

cudaError_t check_indices(std::span<const penstock_index_list> lists, cudaStream_t stream) {
  while (!lists.empty()) {
    const auto some = lists.first(std::min<size_t>(lists.size(), IndexLists::kMost));
    lists = lists.subspan(some.size());
    IndexLists parameter{};
    std::copy(some.begin(), some.end(), parameter.lists);
    uint64_t most = 1;
    for (const penstock_index_list& list : some) most = std::max(most, list.count);
    cudaLaunchConfig_t config{};
    const unsigned blocks_each = blocks_for(most);
    config.gridDim = dim3(blocks_each * static_cast<unsigned>(some.size()));
    config.blockDim = dim3(kThreads);
    config.stream = stream;
    const cudaError_t error =
        cudaLaunchKernelEx(&config, look_for_wrong_indices, parameter, blocks_each);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace penstock::device_cuda

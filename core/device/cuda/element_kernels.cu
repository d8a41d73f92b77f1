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

// Arrays to look at, by value, so that they travel with the launch, as many as fit. Their blocks
// are numbered through: those of the first array, then those of the second.
template <typename Array>
struct LookedAt {
  static constexpr uint32_t kMost = 4000 / (sizeof(Array) + sizeof(uint32_t));

  void add(const Array& array) {
    all[n] = array;
    first_blocks[n++] = n_blocks;
    n_blocks += static_cast<uint32_t>(blocks_for(array.count));
  }

  Array all[kMost];
  uint32_t first_blocks[kMost];
  uint32_t n = 0;
  uint32_t n_blocks = 0;
};

// Whose a block is: the last that begins there or before, since one without any begins where the
// next does.
template <typename Array>
__device__ uint32_t array_of_block(const LookedAt<Array>& arrays) {
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

// Whether the predicate holds for some of the elements that are this thread's of an array.
template <typename Array, typename Predicate>
__device__ bool any_of_mine(const LookedAt<Array>& arrays, uint32_t which, Predicate&& holds) {
  const uint64_t count = arrays.all[which].count;
  const uint32_t first = arrays.first_blocks[which];
  const uint32_t end = which + 1 < arrays.n ? arrays.first_blocks[which + 1] : arrays.n_blocks;
  bool any = false;
  for (uint64_t i = uint64_t{blockIdx.x - first} * kThreads + threadIdx.x; i < count;
       i += uint64_t{end - first} * kThreads)
    any = any || holds(i);
  return any;
}

// All that write, write the same.
__global__ void look_for_nonfinite(LookedAt<penstock_device_values> arrays) {
  const uint32_t which = array_of_block(arrays);
  const auto* const values = reinterpret_cast<const uint32_t*>(arrays.all[which].values);
  if (any_of_mine(arrays, which, [&](uint64_t i) { return (values[i] & kExponent) == kExponent; }))
    *arrays.all[which].found = 1;
}

__global__ void look_for_wrong_indices(LookedAt<penstock_index_list> lists) {
  const uint32_t which = array_of_block(lists);
  const penstock_index_list& list = lists.all[which];
  const uint32_t* const indices = list.indices;
  if (any_of_mine(lists, which, [&](uint64_t i) {
        return indices[i] >= list.below || (i != 0 && indices[i] <= indices[i - 1]);
      }))
    *list.wrong = 1;
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

template <typename Array>
cudaError_t look_at(void (*kernel)(LookedAt<Array>), std::span<const Array> arrays,
                    cudaStream_t stream) {
  while (!arrays.empty()) {
    const auto some = arrays.first(std::min<uint64_t>(arrays.size(), LookedAt<Array>::kMost));
    LookedAt<Array> looked_at;
    for (const Array& array : some) looked_at.add(array);
    const cudaError_t error = queue(kernel, looked_at.n_blocks, stream, looked_at);
    if (error != cudaSuccess) return error;
    arrays = arrays.subspan(some.size());
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t find_nonfinite(std::span<const penstock_device_values> arrays, cudaStream_t stream) {
  return look_at(look_for_nonfinite, arrays, stream);
}

cudaError_t fill_nan(float* values, uint64_t count, cudaStream_t stream) {
  return queue(write_nan, blocks_for(count), stream, reinterpret_cast<uint32_t*>(values), count);
}

cudaError_t scale(float* values, uint64_t count, float factor, cudaStream_t stream) {
  return queue(multiply, blocks_for(count), stream, values, count, factor);
}

cudaError_t check_indices(std::span<const penstock_index_list> lists, cudaStream_t stream) {
  return look_at(look_for_wrong_indices, lists, stream);
}

}  // namespace penstock::device_cuda

// See element_kernels.hpp.
#include "core/device/cuda/element_kernels.hpp"

#include <penstock/base.h>

#include <cuda_runtime.h>
#include <kernels/element/half.hpp>

#include <algorithm>
#include <bit>

namespace penstock::device_cuda {
namespace {

// The floats that are worked on, as bits. The exponent is full where one is NaN or infinite.
struct Float32 {
  using Bits = uint32_t;
  static constexpr Bits kExponent = 0x7f800000u, kQuietNan = 0x7fc00000u;
  static __device__ uint32_t wide(Bits bits) { return bits; }
  static __device__ Bits narrow(uint32_t wide) { return wide; }
};
struct Float16 {
  using Bits = uint16_t;
  static constexpr Bits kExponent = 0x7c00u, kQuietNan = 0x7e00u;
  static __device__ uint32_t wide(Bits bits) { return kernels::float_bits(bits); }
  static __device__ Bits narrow(uint32_t wide) {
    return static_cast<Bits>(kernels::half_bits(wide));
  }
};
struct Bfloat16 {
  using Bits = uint16_t;
  static constexpr Bits kExponent = 0x7f80u, kQuietNan = 0x7fc0u;
  static __device__ uint32_t wide(Bits bits) { return uint32_t{bits} << 16; }
  static __device__ Bits narrow(uint32_t wide) { return kernels::bfloat16_bits(wide); }
};

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

// Arrays to work on, by value, so that they travel with the launch, as many as fit. Their blocks
// are numbered through: those of the first array, then those of the second.
template <typename Array>
struct Arrays {
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
__device__ uint32_t array_of_block(const Arrays<Array>& arrays) {
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

// Calls body(i) for the elements of an array that are this thread's.
template <typename Array, typename Body>
__device__ void each_of_mine(const Arrays<Array>& arrays, uint32_t which, Body&& body) {
  const uint64_t count = arrays.all[which].count;
  const uint32_t first = arrays.first_blocks[which];
  const uint32_t end = which + 1 < arrays.n ? arrays.first_blocks[which + 1] : arrays.n_blocks;
  for (uint64_t i = uint64_t{blockIdx.x - first} * kThreads + threadIdx.x; i < count;
       i += uint64_t{end - first} * kThreads)
    body(i);
}

template <typename Float>
__device__ bool is_nonfinite_in_mine(const Arrays<penstock_device_values>& arrays, uint32_t which) {
  using Bits = typename Float::Bits;
  const auto* const values = static_cast<const Bits*>(arrays.all[which].values);
  auto* const widened = reinterpret_cast<uint32_t*>(arrays.all[which].widened);
  bool any = false;
  each_of_mine(arrays, which, [&](uint64_t i) {
    const Bits bits = values[i];
    any = any || (bits & Float::kExponent) == Float::kExponent;
    if (widened != nullptr) widened[i] = Float::wide(bits);
  });
  return any;
}

// All that write, write the same.
__global__ void look_for_nonfinite(Arrays<penstock_device_values> arrays) {
  const uint32_t which = array_of_block(arrays);
  const uint32_t dtype = arrays.all[which].dtype;
  const bool any = dtype == PENSTOCK_FLOAT16    ? is_nonfinite_in_mine<Float16>(arrays, which)
                   : dtype == PENSTOCK_BFLOAT16 ? is_nonfinite_in_mine<Bfloat16>(arrays, which)
                                                : is_nonfinite_in_mine<Float32>(arrays, which);
  if (any) *arrays.all[which].found = 1;
}

__global__ void look_for_wrong_indices(Arrays<penstock_index_list> lists) {
  const uint32_t which = array_of_block(lists);
  const penstock_index_list& list = lists.all[which];
  const uint32_t* const indices = list.indices;
  bool any = false;
  each_of_mine(lists, which, [&](uint64_t i) {
    any = any || indices[i] >= list.below || (i != 0 && indices[i] <= indices[i - 1]);
  });
  if (any) *list.wrong = 1;
}

template <typename Element>
__device__ void copy_mine(const Arrays<penstock_device_copy>& copies, uint32_t which) {
  const auto* const source = static_cast<const Element*>(copies.all[which].source);
  auto* const target = static_cast<Element*>(copies.all[which].target);
  each_of_mine(copies, which, [&](uint64_t i) { target[i] = source[i]; });
}

__global__ void copy_all(Arrays<penstock_device_copy> copies) {
  const uint32_t which = array_of_block(copies);
  if (copies.all[which].element_bytes == sizeof(uint16_t))
    copy_mine<uint16_t>(copies, which);
  else
    copy_mine<uint32_t>(copies, which);
}

template <typename Bits>
__global__ void write_everywhere(Bits* values, uint64_t count, Bits bits) {
  for (uint64_t i = first_element(); i < count; i += stride()) values[i] = bits;
}

template <typename Float>
__global__ void multiply(typename Float::Bits* values, uint64_t count, float factor) {
  for (uint64_t i = first_element(); i < count; i += stride()) {
    const float product = std::bit_cast<float>(Float::wide(values[i])) * factor;
    values[i] = Float::narrow(std::bit_cast<uint32_t>(product));
  }
}

template <typename Float>
__global__ void round_all(const uint32_t* source, typename Float::Bits* target, uint64_t count) {
  for (uint64_t i = first_element(); i < count; i += stride()) target[i] = Float::narrow(source[i]);
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

// Calls body(the float of a dtype).
template <typename Body>
cudaError_t with_float(uint32_t dtype, const Body& body) {
  switch (dtype) {
    case PENSTOCK_FLOAT32:
      return body(Float32());
    case PENSTOCK_FLOAT16:
      return body(Float16());
    case PENSTOCK_BFLOAT16:
      return body(Bfloat16());
    default:
      return cudaErrorInvalidValue;
  }
}

template <typename Array>
cudaError_t for_all(void (*kernel)(Arrays<Array>), std::span<const Array> arrays,
                    cudaStream_t stream) {
  while (!arrays.empty()) {
    const auto some = arrays.first(std::min<uint64_t>(arrays.size(), Arrays<Array>::kMost));
    Arrays<Array> of;
    for (const Array& array : some) of.add(array);
    const cudaError_t error = queue(kernel, of.n_blocks, stream, of);
    if (error != cudaSuccess) return error;
    arrays = arrays.subspan(some.size());
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t find_nonfinite(std::span<const penstock_device_values> arrays, cudaStream_t stream) {
  return for_all(look_for_nonfinite, arrays, stream);
}

cudaError_t fill_nan(void* values, uint64_t count, uint32_t dtype, cudaStream_t stream) {
  return with_float(dtype, [&]<typename Float>(Float) {
    using Bits = typename Float::Bits;
    return queue(write_everywhere<Bits>, blocks_for(count), stream, static_cast<Bits*>(values),
                 count, Float::kQuietNan);
  });
}

cudaError_t scale(void* values, uint64_t count, uint32_t dtype, float factor, cudaStream_t stream) {
  return with_float(dtype, [&]<typename Float>(Float) {
    return queue(multiply<Float>, blocks_for(count), stream,
                 static_cast<typename Float::Bits*>(values), count, factor);
  });
}

cudaError_t narrow(const float* source, void* target, uint64_t count, uint32_t dtype,
                   cudaStream_t stream) {
  return with_float(dtype, [&]<typename Float>(Float) {
    return queue(round_all<Float>, blocks_for(count), stream,
                 reinterpret_cast<const uint32_t*>(source),
                 static_cast<typename Float::Bits*>(target), count);
  });
}

cudaError_t copy_many(std::span<const penstock_device_copy> copies, cudaStream_t stream) {
  return for_all(copy_all, copies, stream);
}

cudaError_t check_indices(std::span<const penstock_index_list> lists, cudaStream_t stream) {
  return for_all(look_for_wrong_indices, lists, stream);
}

}  // namespace penstock::device_cuda

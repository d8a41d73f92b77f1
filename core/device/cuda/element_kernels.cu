// See element_kernels.hpp.
#include "core/device/cuda/element_kernels.hpp"

#include <penstock/base.h>

#include <cuda_runtime.h>
#include <kernels/cuda/loading.hpp>
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
constexpr uint32_t kLoads = 4;          // of 16 bytes, in flight in each thread
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

// Which elements, or words of them, of its array are this thread's.
struct Mine {
  uint64_t first;
  uint64_t stride;
};
template <typename Array>
__device__ Mine mine_of(const Arrays<Array>& arrays, uint32_t which) {
  const uint32_t first = arrays.first_blocks[which];
  const uint32_t end = which + 1 < arrays.n ? arrays.first_blocks[which + 1] : arrays.n_blocks;
  return {uint64_t{blockIdx.x - first} * kThreads + threadIdx.x, uint64_t{end - first} * kThreads};
}

// Calls body(i, word) for the words of source[begin, end) that are this thread's; element i is the
// first of a word. A few independent loads are in flight before the first is used.
template <typename Word, typename Element, typename Body>
__device__ void each_word(const Mine& mine, const Element* source, uint64_t begin, uint64_t end,
                          const Body& body) {
  constexpr uint64_t kInWord = sizeof(Word) / sizeof(Element);
  const auto* const words = reinterpret_cast<const Word*>(source + begin);
  const uint64_t n = (end - begin) / kInWord;
  for (uint64_t first = mine.first; first < n; first += mine.stride * kLoads) {
    Word in[kLoads];
#pragma unroll
    for (uint32_t j = 0; j < kLoads; ++j)
      if (first + j * mine.stride < n) in[j] = words[first + j * mine.stride];
#pragma unroll
    for (uint32_t j = 0; j < kLoads; ++j)
      if (first + j * mine.stride < n) body(begin + (first + j * mine.stride) * kInWord, in[j]);
  }
}

constexpr uint32_t kWideBytes = sizeof(uint4);

__device__ uint32_t beyond_wide(const void* pointer) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(pointer) % kWideBytes);
}

// Calls body(i, 16 bytes of elements) where `source` lies so and body(i, element) before and
// behind.
template <typename Element, typename Body>
__device__ void each_of_mine(const Mine& mine, const Element* source, uint64_t count,
                             const Body& body) {
  constexpr uint64_t kInWide = kWideBytes / sizeof(Element);
  const uint64_t to_wide = (kWideBytes - beyond_wide(source)) % kWideBytes / sizeof(Element);
  const uint64_t begin = to_wide < count ? to_wide : count;
  const uint64_t end = begin + (count - begin) / kInWide * kInWide;
  each_word<Element>(mine, source, 0, begin, body);
  each_word<uint4>(mine, source, begin, end, body);
  each_word<Element>(mine, source, end, count, body);
}

// What the look does with what is read.
template <typename Float>
struct Looking {
  using Bits = typename Float::Bits;
  uint32_t* widened;  // or null
  bool* any;

  __device__ void operator()(uint64_t i, Bits bits) const {
    *any = *any || (bits & Float::kExponent) == Float::kExponent;
    if (widened != nullptr) widened[i] = Float::wide(bits);
  }
  __device__ void operator()(uint64_t i, const uint4& four) const {
    if constexpr (sizeof(Bits) == sizeof(uint32_t)) {
      *any = *any || is_found(four.x) || is_found(four.y) || is_found(four.z) || is_found(four.w);
      if (widened != nullptr) store(i, four);
    } else {
      take_pairs(i, four.x, four.y);
      take_pairs(i + 4, four.z, four.w);
    }
  }

 private:
  __device__ static bool is_found(uint32_t bits) {
    return (bits & Float::kExponent) == Float::kExponent;
  }
  __device__ void take_pairs(uint64_t i, uint32_t a, uint32_t b) const {
    *any = *any || is_found(a) || is_found(a >> 16) || is_found(b) || is_found(b >> 16);
    if (widened == nullptr) return;
    store(i, {wide(a), wide(a >> 16), wide(b), wide(b >> 16)});
  }
  __device__ static uint32_t wide(uint32_t bits) { return Float::wide(static_cast<Bits>(bits)); }
  __device__ void store(uint64_t i, const uint4& four) const {
    uint32_t* const to = widened + i;
    if (beyond_wide(to) == 0) {
      *reinterpret_cast<uint4*>(to) = four;
    } else {
      to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
    }
  }
};

template <typename Float>
__device__ bool is_nonfinite_in_mine(const Arrays<penstock_device_values>& arrays, uint32_t which) {
  const penstock_device_values& array = arrays.all[which];
  bool any = false;
  const Looking<Float> looking{reinterpret_cast<uint32_t*>(array.widened), &any};
  each_of_mine(mine_of(arrays, which), static_cast<const typename Float::Bits*>(array.values),
               array.count, looking);
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
  const Mine mine = mine_of(lists, which);
  bool any = false;
  for (uint64_t i = mine.first; i < list.count; i += mine.stride)
    any = any || indices[i] >= list.below || (i != 0 && indices[i] <= indices[i - 1]);
  if (any) *list.wrong = 1;
}

template <typename Element>
struct Copying {
  Element* target;
  __device__ void operator()(uint64_t i, Element element) const { target[i] = element; }
  __device__ void operator()(uint64_t i, const uint4& wide) const {
    *reinterpret_cast<uint4*>(target + i) = wide;
  }
};

template <typename Element>
__device__ void copy_mine(const Arrays<penstock_device_copy>& copies, uint32_t which) {
  const penstock_device_copy& copy = copies.all[which];
  const auto* const source = static_cast<const Element*>(copy.source);
  const Copying<Element> copying{static_cast<Element*>(copy.target)};
  const Mine mine = mine_of(copies, which);
  if (beyond_wide(copy.source) == beyond_wide(copy.target))
    each_of_mine(mine, source, copy.count, copying);
  else
    each_word<Element>(mine, source, 0, copy.count, copying);
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

// Of a kernel that is loaded when a stream is made.
template <auto kKernel, typename... Arguments>
cudaError_t queue(uint64_t blocks, cudaStream_t stream, const Arguments&... arguments) {
  if (blocks == 0) return cudaSuccess;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernels::cuda::listed<kKernel>(), arguments...);
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

template <auto kKernel, typename Array>
cudaError_t for_all(std::span<const Array> arrays, cudaStream_t stream) {
  while (!arrays.empty()) {
    const auto some = arrays.first(std::min<uint64_t>(arrays.size(), Arrays<Array>::kMost));
    Arrays<Array> of;
    for (const Array& array : some) of.add(array);
    const cudaError_t error = queue<kKernel>(of.n_blocks, stream, of);
    if (error != cudaSuccess) return error;
    arrays = arrays.subspan(some.size());
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t find_nonfinite(std::span<const penstock_device_values> arrays, cudaStream_t stream) {
  return for_all<look_for_nonfinite>(arrays, stream);
}

cudaError_t fill_nan(void* values, uint64_t count, uint32_t dtype, cudaStream_t stream) {
  return with_float(dtype, [&]<typename Float>(Float) {
    using Bits = typename Float::Bits;
    return queue<write_everywhere<Bits>>(blocks_for(count), stream, static_cast<Bits*>(values),
                                         count, Float::kQuietNan);
  });
}

cudaError_t scale(void* values, uint64_t count, uint32_t dtype, float factor, cudaStream_t stream) {
  return with_float(dtype, [&]<typename Float>(Float) {
    return queue<multiply<Float>>(blocks_for(count), stream,
                                  static_cast<typename Float::Bits*>(values), count, factor);
  });
}

cudaError_t narrow(const float* source, void* target, uint64_t count, uint32_t dtype,
                   cudaStream_t stream) {
  return with_float(dtype, [&]<typename Float>(Float) {
    return queue<round_all<Float>>(blocks_for(count), stream,
                                   reinterpret_cast<const uint32_t*>(source),
                                   static_cast<typename Float::Bits*>(target), count);
  });
}

cudaError_t copy_many(std::span<const penstock_device_copy> copies, cudaStream_t stream) {
  return for_all<copy_all>(copies, stream);
}

cudaError_t check_indices(std::span<const penstock_index_list> lists, cudaStream_t stream) {
  return for_all<look_for_wrong_indices>(lists, stream);
}

}  // namespace penstock::device_cuda

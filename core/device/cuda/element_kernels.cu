// See element_kernels.hpp.
#include "core/device/cuda/element_kernels.hpp"

#include <penstock/base.h>

#include <cuda_runtime.h>
#include <kernels/cuda/loading.hpp>
#include <kernels/element/half.hpp>

#include <algorithm>
#include <bit>
#include <type_traits>

namespace penstock::device_cuda {
namespace {

// The types of the floats, by their bits. A full exponent means NaN or infinity.
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
constexpr uint32_t kBlocksAtOnce = 4;  // per multiprocessor; loads of fewer threads do not fill it
constexpr uint64_t kPerThread = 8;
constexpr uint32_t kLoads = 4;          // of 16 bytes, in flight per thread
constexpr uint64_t kMostBlocks = 2048;  // a few per multiprocessor of the largest device

__device__ uint64_t first_element() {
  return uint64_t{blockIdx.x} * kThreads + threadIdx.x;
}
__device__ uint64_t stride() {
  return uint64_t{gridDim.x} * kThreads;
}

uint64_t blocks_for(uint64_t count) {
  return std::min((count + kThreads * kPerThread - 1) / (kThreads * kPerThread), kMostBlocks);
}

// As many arrays as fit into the parameters of a launch, by value. The blocks are numbered in
// order: the blocks of the first array, then the blocks of the second, and so on.
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

// The array of this block: the last array with a first block at or before it. An empty array has
// the first block of the next array.
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

// The elements (or words) of the array for this thread.
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

// Calls body(begin, w, word) for each word of this thread. Word w lies w words behind element
// `begin`. A few independent loads are in flight before the first one is used. (`w` counts words,
// because with a pointer to elements nvcc splits each store of a word into two or three.)
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
      if (first + j * mine.stride < n) body(begin, first + j * mine.stride, in[j]);
  }
}

template <typename Word>
__device__ uint32_t beyond(const void* pointer) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(pointer) % sizeof(Word));
}

// The number of elements before the first aligned word.
template <typename Word, typename Element>
__device__ uint64_t to_first(const Element* source) {
  return (sizeof(Word) - beyond<Word>(source)) % sizeof(Word) / sizeof(Element);
}

// Calls `body` with words of elements where `source` is aligned, and with single elements before
// and behind.
template <typename Word, typename Element, typename Body>
__device__ void each_of_mine(const Mine& mine, const Element* source, uint64_t count,
                             const Body& body) {
  constexpr uint64_t kInWord = sizeof(Word) / sizeof(Element);
  const uint64_t to_word = to_first<Word>(source);
  const uint64_t begin = to_word < count ? to_word : count;
  const uint64_t end = begin + (count - begin) / kInWord * kInWord;
  each_word<Element>(mine, source, 0, begin, body);
  each_word<Word>(mine, source, begin, end, body);
  each_word<Element>(mine, source, end, count, body);
}

// Whether a float in `bits` is not finite: one float of 32 bits or two of 16.
template <typename Float>
__device__ bool is_found(uint32_t bits) {
  const auto is = [](uint32_t one) { return (one & Float::kExponent) == Float::kExponent; };
  return is(bits) || (sizeof(typename Float::Bits) < sizeof bits && is(bits >> 16));
}

// The inspection of a loaded word or element.
template <typename Float>
struct Looking {
  bool* any;
  __device__ void operator()(uint64_t, uint64_t, typename Float::Bits bits) const {
    *any = *any || is_found<Float>(bits);
  }
  __device__ void operator()(uint64_t, uint64_t, const uint4& of) const {
    *any = *any || is_found<Float>(of.x) || is_found<Float>(of.y) || is_found<Float>(of.z) ||
           is_found<Float>(of.w);
  }
};

// Inspects and also writes the widened floats. Four floats are one store of 16 bytes, so that the
// threads of a warp write adjacent memory. So for 16-bit floats a thread loads only 8 bytes.
template <typename Float>
struct Widening {
  using Bits = typename Float::Bits;
  using Word = std::conditional_t<sizeof(Bits) == sizeof(uint32_t), uint4, uint2>;

  uint32_t* widened;
  bool* any;

  // If a word of `source` is aligned, 16 bytes of `widened` must be aligned too.
  __device__ bool fits(const Bits* source) const {
    return beyond<uint4>(widened + to_first<Word>(source)) == 0;
  }
  __device__ void operator()(uint64_t begin, uint64_t w, Bits bits) const {
    *any |= is_found<Float>(bits);
    widened[begin + w] = Float::wide(bits);
  }
  __device__ void operator()(uint64_t begin, uint64_t w, const uint4& four) const {
    *any |= is_found<Float>(four.x) || is_found<Float>(four.y) || is_found<Float>(four.z) ||
            is_found<Float>(four.w);
    reinterpret_cast<uint4*>(widened + begin)[w] = four;
  }
  __device__ void operator()(uint64_t begin, uint64_t w, const uint2& pairs) const {
    *any |= is_found<Float>(pairs.x) || is_found<Float>(pairs.y);
    reinterpret_cast<uint4*>(widened + begin)[w] = {wide(pairs.x), wide(pairs.x >> 16),
                                                    wide(pairs.y), wide(pairs.y >> 16)};
  }

 private:
  __device__ static uint32_t wide(uint32_t bits) { return Float::wide(static_cast<Bits>(bits)); }
};

template <typename Float>
__device__ bool is_nonfinite_in_mine(const Arrays<penstock_device_values>& arrays, uint32_t which) {
  using Bits = typename Float::Bits;
  const penstock_device_values& array = arrays.all[which];
  const auto* const source = static_cast<const Bits*>(array.values);
  const Mine mine = mine_of(arrays, which);
  bool any = false;
  const Widening<Float> widening{reinterpret_cast<uint32_t*>(array.widened), &any};
  if (array.widened == nullptr)
    each_of_mine<uint4>(mine, source, array.count, Looking<Float>{&any});
  else if (widening.fits(source))
    each_of_mine<typename Widening<Float>::Word>(mine, source, array.count, widening);
  else
    each_word<Bits>(mine, source, 0, array.count, widening);
  return any;
}

// Every thread that writes writes an equal value.
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce)
    look_for_nonfinite(Arrays<penstock_device_values> arrays) {
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
  __device__ void operator()(uint64_t begin, uint64_t w, Element element) const {
    target[begin + w] = element;
  }
  __device__ void operator()(uint64_t begin, uint64_t w, const uint4& wide) const {
    reinterpret_cast<uint4*>(target + begin)[w] = wide;
  }
};

template <typename Element>
__device__ void copy_mine(const Arrays<penstock_device_copy>& copies, uint32_t which) {
  const penstock_device_copy& copy = copies.all[which];
  const auto* const source = static_cast<const Element*>(copy.source);
  const Copying<Element> copying{static_cast<Element*>(copy.target)};
  const Mine mine = mine_of(copies, which);
  if (beyond<uint4>(copy.source) == beyond<uint4>(copy.target))
    each_of_mine<uint4>(mine, source, copy.count, copying);
  else
    each_word<Element>(mine, source, 0, copy.count, copying);
}

__global__ void __launch_bounds__(kThreads, kBlocksAtOnce)
    copy_all(Arrays<penstock_device_copy> copies) {
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

// Queues a kernel that was loaded when a stream was made.
template <auto kKernel, typename... Arguments>
cudaError_t queue(uint64_t blocks, cudaStream_t stream, const Arguments&... arguments) {
  if (blocks == 0) return cudaSuccess;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernels::cuda::listed<kKernel>(), arguments...);
}

// Calls body(the float type of a dtype).
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

// Codes of 1 to 8 bits; see values.hpp. A thread takes eight codes at a time, b bytes when packed;
// a block's bytes go through shared memory, so that whole words are read and written.
#include <kernels/cuda/block.cuh>
#include <kernels/cuda/queue.hpp>
#include <kernels/cuda/values.hpp>
#include <kernels/element/packing.hpp>
#include <kernels/pack_bits.hpp>

namespace penstock::kernels::cuda {
namespace {

constexpr uint32_t kGroup = 8;  // codes of a thread at a time
constexpr uint32_t kPackTile = kPackThreads * kGroup;
static_assert(kPackTile % 64 == 0, "a tile is whole words, whatever the width");
constexpr uint32_t kGroups = 4;  // in flight, of a thread that packs

// Loads a group of codes; codes behind the last code are zero.
__device__ uint64_t load_codes(const uint8_t* codes, uint64_t first, uint64_t count) {
  if (first + kGroup <= count) return *reinterpret_cast<const uint64_t*>(codes + first);
  uint64_t group = 0;
  for (uint32_t c = 0; first + c < count; ++c) group |= uint64_t{codes[first + c]} << (8 * c);
  return group;
}

// Stores kBits bytes of `narrowed`. If kBits is the size of an integer type, `to` is aligned for
// this type.
template <unsigned kBits>
__device__ void store_bytes(uint8_t* to, uint64_t narrowed) {
  if constexpr (kBits == 8) {
    *reinterpret_cast<uint64_t*>(to) = narrowed;
  } else if constexpr (kBits == 4) {
    *reinterpret_cast<uint32_t*>(to) = static_cast<uint32_t>(narrowed);
  } else if constexpr (kBits == 2) {
    *reinterpret_cast<uint16_t*>(to) = static_cast<uint16_t>(narrowed);
  } else {
#pragma unroll
    for (uint32_t b = 0; b < kBits; ++b) to[b] = static_cast<uint8_t>(narrowed >> (8 * b));
  }
}

// Packs the groups of a block whose first code is `first`. For a whole tile there are no checks for
// the end.
template <unsigned kBits, bool kWhole>
__device__ void pack_groups(const uint8_t* codes, uint64_t first, uint64_t count, uint8_t* bytes) {
  uint64_t groups[kGroups];
#pragma unroll
  for (uint32_t g = 0; g < kGroups; ++g) {
    const uint64_t at = first + (g * kPackThreads + threadIdx.x) * kGroup;
    if constexpr (kWhole)
      groups[g] = *reinterpret_cast<const uint64_t*>(codes + at);
    else
      groups[g] = at < count ? load_codes(codes, at, count) : 0;
  }
#pragma unroll
  for (uint32_t g = 0; g < kGroups; ++g)
    store_bytes<kBits>(bytes + kBits * (g * kPackThreads + threadIdx.x), narrow<kBits>(groups[g]));
}

template <unsigned kBits>
__global__ void __launch_bounds__(kPackThreads)
    pack_tiles(const uint8_t* codes, uint64_t count, uint64_t* words) {
  constexpr uint32_t kCodes = kGroups * kPackTile, kWords = kCodes / 64 * kBits;
  __shared__ uint64_t packed[kWords];
  const uint64_t first = uint64_t{blockIdx.x} * kCodes;
  auto* const bytes = reinterpret_cast<uint8_t*>(packed);
  if (first + kCodes <= count)
    pack_groups<kBits, true>(codes, first, count, bytes);
  else
    pack_groups<kBits, false>(codes, first, count, bytes);
  __syncthreads();
  const uint64_t first_word = uint64_t{blockIdx.x} * kWords;
  const uint64_t n_words = packed_words(count, kBits);
  for (uint32_t w = threadIdx.x; w < kWords; w += kPackThreads)
    if (first_word + w < n_words) words[first_word + w] = packed[w];
}

template <unsigned kBits>
__global__ void __launch_bounds__(kPackThreads)
    unpack_tile(const uint64_t* words, uint64_t count, uint8_t* codes) {
  constexpr uint32_t kWords = kPackTile / 64 * kBits;
  __shared__ uint64_t packed[kWords];
  const uint64_t first_word = uint64_t{blockIdx.x} * kWords;
  const uint64_t n_words = packed_words(count, kBits);
  for (uint32_t w = threadIdx.x; w < kWords; w += kPackThreads)
    packed[w] = first_word + w < n_words ? words[first_word + w] : 0;
  __syncthreads();
  const uint64_t first = uint64_t{blockIdx.x} * kPackTile + threadIdx.x * kGroup;
  if (first >= count) return;
  const auto* const bytes = reinterpret_cast<const uint8_t*>(packed) + kBits * threadIdx.x;
  uint64_t narrowed = 0;
#pragma unroll
  for (uint32_t b = 0; b < kBits; ++b) narrowed |= uint64_t{bytes[b]} << (8 * b);
  const uint64_t group = widen<kBits>(narrowed);
  if (first + kGroup <= count) {
    *reinterpret_cast<uint64_t*>(codes + first) = group;
  } else {
    for (uint32_t c = 0; first + c < count; ++c)
      codes[first + c] = static_cast<uint8_t>(group >> (8 * c));
  }
}

// Calls use.template operator()<kBits>().
template <typename Use>
void with_bits(unsigned bits, Use&& use) {
  switch (bits) {
    case 1:
      return use.template operator()<1>();
    case 2:
      return use.template operator()<2>();
    case 3:
      return use.template operator()<3>();
    case 4:
      return use.template operator()<4>();
    case 5:
      return use.template operator()<5>();
    case 6:
      return use.template operator()<6>();
    case 7:
      return use.template operator()<7>();
    default:
      return use.template operator()<8>();
  }
}

bool legal(const uint8_t* codes, uint64_t count, unsigned bits, const uint64_t* words) {
  if (bits == 0 || bits > kMaxPackedBits) return false;
  return count == 0 ||
         (codes != nullptr && words != nullptr && aligned(codes, 8) && aligned(words, 8));
}

}  // namespace

int32_t pack_bits(const uint8_t* codes, uint64_t count, unsigned bits, uint64_t* words,
                  void* stream) noexcept {
  if (!legal(codes, count, bits, words)) return cudaErrorInvalidValue;
  Queue queue(stream);
  with_bits(bits, [&]<unsigned kBits>() {
    queue.run<pack_tiles<kBits>>(pieces(count, kGroups * kPackTile), kPackThreads, codes, count,
                                 words);
  });
  return queue.error();
}

int32_t unpack_bits(const uint64_t* words, uint64_t count, unsigned bits, uint8_t* codes,
                    void* stream) noexcept {
  if (!legal(codes, count, bits, words)) return cudaErrorInvalidValue;
  Queue queue(stream);
  with_bits(bits, [&]<unsigned kBits>() {
    queue.run<unpack_tile<kBits>>(pieces(count, kPackTile), kPackThreads, words, count, codes);
  });
  return queue.error();
}

}  // namespace penstock::kernels::cuda

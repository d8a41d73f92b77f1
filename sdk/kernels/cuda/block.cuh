// Operations that the threads of a warp or of a block do together. Internal to the CUDA kernels.
// Blocks have one dimension and whole warps, and all their threads stay to the end, so every mask
// is the full mask.
#pragma once

#include <cuda_runtime.h>
#include <kernels/cuda/tuning.hpp>

#include <cstdint>

namespace penstock::kernels::cuda {

inline constexpr uint32_t kAllLanes = 0xffffffffu;
using Long = unsigned long long;  // the type of 64-bit atomics; as wide as uint64_t
static_assert(sizeof(Long) == sizeof(uint64_t));

__device__ inline uint32_t lane() {
  return threadIdx.x % kWarp;
}
__device__ inline uint32_t warp_of_block() {
  return threadIdx.x / kWarp;
}
// A mask with the bits of the lanes before this lane.
__device__ inline uint32_t lanes_before() {
  return (1u << lane()) - 1;
}

template <typename T>
__device__ T warp_inclusive_sum(T value) {
  for (uint32_t distance = 1; distance < kWarp; distance *= 2) {
    const T before = __shfl_up_sync(kAllLanes, value, distance);
    if (lane() >= distance) value += before;
  }
  return value;
}

template <typename T>
__device__ T warp_sum(T value) {
  for (uint32_t distance = kWarp / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync(kAllLanes, value, distance);
  return value;
}

template <typename T>
__device__ T warp_smallest(T value) {
  for (uint32_t distance = kWarp / 2; distance > 0; distance /= 2) {
    const T other = __shfl_xor_sync(kAllLanes, value, distance);
    value = other < value ? other : value;
  }
  return value;
}

template <typename T>
__device__ T warp_largest(T value) {
  for (uint32_t distance = kWarp / 2; distance > 0; distance /= 2) {
    const T other = __shfl_xor_sync(kAllLanes, value, distance);
    value = value < other ? other : value;
  }
  return value;
}

// The sum of `value` over the threads before this thread; `total` receives the sum over all
// threads. `sums` has kThreads / 32 entries in shared memory, which are unused before and after the
// call.
template <uint32_t kThreads, typename T>
__device__ T block_exclusive_sum(T value, T* sums, T& total) {
  constexpr uint32_t kWarps = kThreads / kWarp;
  static_assert(kThreads % kWarp == 0 && kWarps <= kWarp);
  const T inclusive = warp_inclusive_sum(value);
  if (lane() == kWarp - 1) sums[warp_of_block()] = inclusive;
  __syncthreads();
  T before = 0;
  total = 0;
  if constexpr (kWarps > 8) {  // every warp sums over all warps
    const T of_warp = lane() < kWarps ? sums[lane()] : 0;
    const T up_to = warp_inclusive_sum(of_warp);
    before = __shfl_sync(kAllLanes, up_to - of_warp, warp_of_block());
    total = __shfl_sync(kAllLanes, up_to, kWarps - 1);
  } else {
    for (uint32_t w = 0; w < kWarps; ++w) {
      if (w < warp_of_block()) before += sums[w];
      total += sums[w];
    }
  }
  __syncthreads();
  return before + inclusive - value;
}

// Whether this block is the last of `blocks` blocks to call this; it then sees the earlier writes
// of the other blocks. All threads of a block must call it; `arrived` must be 0 before the first
// block calls.
__device__ inline bool last_block(uint32_t* arrived, uint32_t blocks) {
  __shared__ bool is_last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last = atomicAdd(arrived, 1u) == blocks - 1;
    __threadfence();
  }
  __syncthreads();
  return is_last;
}

// The place of the k-th largest key in a histogram.
struct Bin {
  uint32_t index;
  uint32_t left;   // the k-th largest key of all is the left-th largest in this bin
  uint32_t count;  // keys in this bin
};

// Finds the bin of the k-th largest key. All threads of a block must call it; 1 <= k <= the sum of
// all bins. Other blocks may have written the histogram, so it is read past the first cache. `sums`
// is as in block_exclusive_sum; `found` is one entry in shared memory, unused before and after the
// call.
template <uint32_t kThreads, uint32_t kBins>
__device__ Bin find_bin(const volatile uint32_t* histogram, uint32_t k, uint32_t* sums,
                        Bin* found) {
  static_assert(kBins % kThreads == 0);
  constexpr uint32_t kMine = kBins / kThreads;
  const uint32_t top = kBins - kMine * threadIdx.x;  // this thread's bins are just below
  uint32_t bins[kMine];  // all loads are in flight before the first value is used
  uint32_t mine = 0;
#pragma unroll
  for (uint32_t b = 0; b < kMine; ++b) bins[b] = histogram[top - 1 - b];
#pragma unroll
  for (uint32_t b = 0; b < kMine; ++b) mine += bins[b];
  uint32_t total;
  uint32_t above = block_exclusive_sum<kThreads>(mine, sums, total);
  if (above < k && k <= above + mine) {
#pragma unroll
    for (uint32_t b = 0; b < kMine; ++b) {
      if (above < k && k <= above + bins[b]) *found = {top - 1 - b, k - above, bins[b]};
      above += bins[b];
    }
  }
  __syncthreads();
  const Bin result = *found;
  __syncthreads();
  return result;
}

}  // namespace penstock::kernels::cuda

// Offsets of tiles: an exclusive sum over an array of counts, by one block. Internal to the CUDA
// kernels. A tile is thousands of elements, so there are few of them.
#pragma once

#include <kernels/cuda/block.cuh>

namespace penstock::kernels::cuda {

// counts[i] <- counts[0] + ... + counts[i - 1], modulo 2^64; *total, unless null, is the sum of
// all. For all threads of a block of kScanThreads. Each thread keeps kScanItems neighbours.
__device__ inline void scan_counts(uint64_t* counts, uint64_t n, uint64_t* total) {
  __shared__ uint64_t sums[kScanThreads / kWarp];
  uint64_t before = 0;
  for (uint64_t first = 0; first < n; first += kScanThreads * kScanItems) {
    const uint64_t mine = first + threadIdx.x * kScanItems;
    uint64_t count[kScanItems];
    uint64_t sum = 0;
#pragma unroll
    for (uint32_t j = 0; j < kScanItems; ++j) {
      count[j] = mine + j < n ? counts[mine + j] : 0;
      sum += count[j];
    }
    uint64_t all;
    uint64_t offset = before + block_exclusive_sum<kScanThreads>(sum, sums, all);
#pragma unroll
    for (uint32_t j = 0; j < kScanItems; ++j) {
      if (mine + j < n) counts[mine + j] = offset;
      offset += count[j];
    }
    before += all;
  }
  if (threadIdx.x == 0 && total != nullptr) *total = before;
}

}  // namespace penstock::kernels::cuda

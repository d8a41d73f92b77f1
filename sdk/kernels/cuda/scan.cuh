// Offsets of tiles: an exclusive sum over an array of counts, by one block. Internal to the CUDA
// kernels. A tile has thousands of elements, so there are few tiles.
#pragma once

#include <kernels/cuda/block.cuh>

namespace penstock::kernels::cuda {

// counts[i] <- counts[0] + ... + counts[i - 1], modulo 2^64; *total, unless null, receives the sum
// of all counts. All threads of a block of kScanThreads must call it. A warp owns neighbours, in
// rows with two counts per lane, so that its loads touch few cache lines.
__device__ inline void scan_counts(uint64_t* counts, uint64_t n, uint64_t* total) {
  constexpr uint32_t kRows = kScanItems / 2;
  __shared__ uint64_t sums[kScanThreads / kWarp];
  uint64_t before = 0;
  for (uint64_t first = 0; first < n; first += kScanThreads * kScanItems) {
    const uint64_t mine = first + warp_of_block() * kWarp * kScanItems + lane() * 2;
    uint64_t even[kRows], odd[kRows];
#pragma unroll
    for (uint32_t r = 0; r < kRows; ++r) {
      const uint64_t i = mine + r * kWarp * 2;
      even[r] = i < n ? counts[i] : 0;
      odd[r] = i + 1 < n ? counts[i + 1] : 0;
    }
    uint64_t offsets[kRows];  // of the even counts, within the warp
    uint64_t of_warp = 0;
#pragma unroll
    for (uint32_t r = 0; r < kRows; ++r) {
      const uint64_t up_to = warp_inclusive_sum(even[r] + odd[r]);
      offsets[r] = of_warp + up_to - even[r] - odd[r];
      of_warp += __shfl_sync(kAllLanes, up_to, kWarp - 1);
    }
    uint64_t all;
    // Only the last lane contributes a number: the sum before it is the sum before the warp.
    const uint64_t offset =
        before + block_exclusive_sum<kScanThreads>(lane() == kWarp - 1 ? of_warp : 0, sums, all);
#pragma unroll
    for (uint32_t r = 0; r < kRows; ++r) {
      const uint64_t i = mine + r * kWarp * 2;
      if (i < n) counts[i] = offset + offsets[r];
      if (i + 1 < n) counts[i + 1] = offset + offsets[r] + even[r];
    }
    before += all;
  }
  if (threadIdx.x == 0 && total != nullptr) *total = before;
}

}  // namespace penstock::kernels::cuda

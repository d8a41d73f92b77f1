// The kernels of a selection, in the order in which they run. Internal to the CUDA kernels.
//
//   find_sampled_bound, or set_bound     the key that candidates must reach
//   collect                              the one pass over the input: candidates, tile by tile
//   find_digit<0>, <1>, <2>              the k-th largest key among them
//   count_chosen, scan_tiles             where each tile writes
//   write_chosen                         indices and values; zeroes what is taken
#pragma once

#include <kernels/cuda/block.cuh>
#include <kernels/cuda/fold.cuh>
#include <kernels/cuda/select_plan.hpp>
#include <kernels/element/keys.hpp>

namespace penstock::kernels::cuda {

// ---- The bound ----

template <uint32_t kForm>
__device__ float value_at(const Selection& s, const Fold& fold, uint64_t i) {
  if constexpr (kForm == PENSTOCK_FORM_NONE) {
    return s.x[i * s.stride];
  } else {
    FoldInput in = load_fold<kForm>(fold, i);
    return apply_fold<kForm>(fold, in);
  }
}

__device__ inline uint32_t digit_of(uint32_t key, uint32_t digit) {
  return digit == 0 ? key >> 20 : digit == 1 ? (key >> 10) & 1023u : key & 1023u;
}
// The digits before this one.
__device__ inline uint32_t before_digit(uint32_t key, uint32_t digit) {
  return digit == 0 ? 0u : digit == 1 ? key >> 20 : key >> 10;
}
__device__ inline uint32_t append_digit(uint32_t prefix, uint32_t bin, uint32_t digit) {
  return digit == 0 ? bin : prefix << 10 | bin;
}

// One block; the keys of the sample stay in registers. Positions are one per stride, scattered by a
// hash, so that no period of the data meets them.
template <uint32_t kForm>
__global__ void __launch_bounds__(kSampleThreads)
    find_sampled_bound(Selection s, Fold fold, uint32_t rank) {
  __shared__ uint32_t histogram[kDigitBins];
  __shared__ uint32_t sums[kSampleThreads / kWarp];
  __shared__ Bin found;
  const uint64_t stride = s.n / kSamples;
  uint32_t keys[kSampleItems];
#pragma unroll
  for (uint32_t j = 0; j < kSampleItems; ++j) {
    const uint64_t sample = uint64_t{j} * kSampleThreads + threadIdx.x;
    const uint64_t scattered = ((sample * 0x9E3779B97F4A7C15u) >> 32) * stride >> 32;
    keys[j] = magnitude_key(value_at<kForm>(s, fold, sample * stride + scattered));
  }
  uint32_t prefix = 0;
  for (uint32_t digit = 0; digit < kDigits; ++digit) {
    for (uint32_t b = threadIdx.x; b < kDigitBins; b += kSampleThreads) histogram[b] = 0;
    __syncthreads();
#pragma unroll
    for (uint32_t j = 0; j < kSampleItems; ++j)
      if (before_digit(keys[j], digit) == prefix)
        atomicAdd(&histogram[digit_of(keys[j], digit)], 1u);
    __syncthreads();
    const Bin bin = find_bin<kSampleThreads, kDigitBins>(histogram, rank, sums, &found);
    prefix = append_digit(prefix, bin.index, digit);
    rank = bin.left;
  }
  if (threadIdx.x == 0) s.state->bound = prefix > 1 ? prefix : 1;
}

// One warp. Without a threshold every entry but zeros is a candidate. `found` is 0 unless there
// will be no candidates.
static __global__ void __launch_bounds__(kWarp)
    set_bound(Selection s, const float* threshold, uint32_t found) {
  if (threadIdx.x != 0) return;
  s.state->bound = threshold == nullptr ? 1 : threshold_key(*threshold);
  s.state->found = found;
  s.state->zeros_fill = s.zeros_reach_zero && *threshold == 0 ? 1 : 0;
  if (s.reached != nullptr) s.reached->smallest = kInfinityKey + 1;
}

// ---- The pass over the input ----

// A block takes one tile. Entry j * kCollectThreads + t of the tile belongs to thread t, so loads
// are coalesced; the candidates of each warp's row are counted, and a sum over rows gives their
// order.
template <uint32_t kForm>
__global__ void __launch_bounds__(kCollectThreads) collect(Selection s, Fold fold) {
  constexpr uint32_t kWarps = kCollectThreads / kWarp;
  constexpr uint32_t kRows = kCollectItems * kWarps;
  static_assert(kRows % kWarp == 0);
  __shared__ uint32_t before[kRows];  // candidates of a row, then of all rows before it
  __shared__ uint32_t begin, total;
  const uint32_t bound = s.state->bound;
  const uint64_t first = uint64_t{blockIdx.x} * kCollectTile + threadIdx.x;
  uint32_t keys[kCollectItems];
  if constexpr (kForm == PENSTOCK_FORM_NONE) {
#pragma unroll
    for (uint32_t j = 0; j < kCollectItems; ++j) {
      const uint64_t i = first + j * kCollectThreads;
      keys[j] = i < s.n ? magnitude_key(s.x[i * s.stride]) : 0;
    }
  } else {
    FoldInput in[kCollectItems];
#pragma unroll
    for (uint32_t j = 0; j < kCollectItems; ++j) {
      const uint64_t i = first + j * kCollectThreads;
      if (i < s.n) in[j] = load_fold<kForm>(fold, i);
    }
#pragma unroll
    for (uint32_t j = 0; j < kCollectItems; ++j) {
      const uint64_t i = first + j * kCollectThreads;
      keys[j] = 0;
      if (i < s.n) {
        const float work = apply_fold<kForm>(fold, in[j]);
        store_fold<kForm>(fold, i, work, in[j]);
        keys[j] = magnitude_key(work);
      }
    }
  }

  uint32_t passed[kCollectItems];  // lanes of this warp whose entry reaches the bound
#pragma unroll
  for (uint32_t j = 0; j < kCollectItems; ++j) {
    passed[j] = __ballot_sync(kAllLanes, keys[j] >= bound);
    if (lane() == 0) before[j * kWarps + warp_of_block()] = __popc(passed[j]);
  }
  __syncthreads();
  if (warp_of_block() == 0) {
    uint32_t sum = 0;
    for (uint32_t row = lane(); row < kRows; row += kWarp) {
      const uint32_t count = before[row];
      const uint32_t inclusive = warp_inclusive_sum(count);
      before[row] = sum + inclusive - count;
      sum += __shfl_sync(kAllLanes, inclusive, kWarp - 1);
    }
    if (lane() == 0) {
      total = sum;
      begin = atomicAdd(&s.state->found, sum);
      s.tiles[blockIdx.x] = {begin, sum};
    }
  }
  __syncthreads();
  // Too many: all entries will compete, and nobody reads candidates.
  if (uint64_t{begin} + total > s.capacity) return;
#pragma unroll
  for (uint32_t j = 0; j < kCollectItems; ++j) {
    if (keys[j] < bound) continue;
    const uint32_t at =
        begin + before[j * kWarps + warp_of_block()] + __popc(passed[j] & lanes_before());
    s.indices[at] = static_cast<uint32_t>(first + j * kCollectThreads);
    s.keys[at] = keys[j];
  }
}

// ---- The threshold ----

__device__ inline bool goes_up_to_k(const Selection& s) {
  return s.up_to_k && s.state->zeros_fill == 0;
}

__device__ inline Decision decision_of(const Selection& s) {
  return decide(s, s.state->found, s.state->bound, goes_up_to_k(s));
}

// Adds up a histogram of one digit over the keys that begin as the k-th largest does; the last
// block to finish reads off the digit.
template <uint32_t kDigit>
__global__ void __launch_bounds__(kDigitThreads) find_digit(Selection s) {
  __shared__ uint32_t histogram[kDigitBins];
  __shared__ uint32_t sums[kDigitThreads / kWarp];
  __shared__ Bin found;
  const Decision decision = decision_of(s);
  if (decision.known) return;  // all threads of all blocks
  for (uint32_t b = threadIdx.x; b < kDigitBins; b += kDigitThreads) histogram[b] = 0;
  __syncthreads();
  const uint32_t prefix = kDigit == 0 ? 0 : s.state->prefix[kDigit == 0 ? 0 : kDigit - 1];
  const uint64_t n = decision.from_all ? s.n : s.state->found;
  const uint64_t step = uint64_t{gridDim.x} * kDigitThreads;
  for (uint64_t i = uint64_t{blockIdx.x} * kDigitThreads + threadIdx.x; i < n; i += step) {
    const uint32_t key = decision.from_all ? magnitude_key(s.x[i * s.stride]) : s.keys[i];
    if (before_digit(key, kDigit) == prefix) atomicAdd(&histogram[digit_of(key, kDigit)], 1u);
  }
  __syncthreads();
  uint32_t* const all = s.state->histogram[kDigit];
  for (uint32_t b = threadIdx.x; b < kDigitBins; b += kDigitThreads)
    if (histogram[b] != 0) atomicAdd(&all[b], histogram[b]);
  if (!last_block(&s.state->arrived[kDigit])) return;
  const uint32_t k = kDigit == 0 ? decision.k : s.state->left[kDigit == 0 ? 0 : kDigit - 1];
  const Bin bin = find_bin<kDigitThreads, kDigitBins>(all, k, sums, &found);
  if (threadIdx.x == 0) {
    s.state->prefix[kDigit] = append_digit(prefix, bin.index, kDigit);
    s.state->left[kDigit] = bin.left;
  }
}

__device__ inline Decision final_decision(const Selection& s) {
  Decision decision = decision_of(s);
  if (!decision.known) {
    decision.threshold = s.state->prefix[kDigits - 1];
    decision.ties = s.state->left[kDigits - 1];
  }
  if (goes_up_to_k(s) && decision.threshold == 0) {  // zeros never go
    decision.k -= decision.ties;
    decision.ties = 0;
  }
  return decision;
}

// ---- Writing ----

// What one warp goes through for one tile: entries of the input, or the tile's candidates.
struct TileEntries {
  uint64_t first;  // in the input, or among the candidates
  uint32_t count;
};
__device__ inline TileEntries entries_of(const Selection& s, const Decision& decision,
                                         uint32_t tile) {
  if (!decision.from_all) return {s.tiles[tile].begin, s.tiles[tile].count};
  const uint64_t first = uint64_t{tile} * kCollectTile;
  const uint64_t left = s.n - first;
  return {first, left < kCollectTile ? static_cast<uint32_t>(left) : kCollectTile};
}
__device__ inline uint32_t key_at(const Selection& s, const Decision& decision, uint64_t at) {
  return decision.from_all ? magnitude_key(s.x[at * s.stride]) : s.keys[at];
}

__device__ inline uint32_t tile_of_warp() {
  return blockIdx.x * kTileWarps + warp_of_block();
}

// How many keys of each tile lie above the threshold and how many at it.
static __global__ void __launch_bounds__(kTileThreads) count_chosen(Selection s) {
  const Decision decision = final_decision(s);
  const uint32_t tile = tile_of_warp();
  if (tile >= s.n_tiles) return;  // whole warps
  uint32_t above = 0, equal = 0;
  if (decision.known && !decision.from_all) {
    above = s.tiles[tile].count;
  } else {
    const TileEntries entries = entries_of(s, decision, tile);
    for (uint32_t j = lane(); j < entries.count; j += kWarp) {
      const uint32_t key = key_at(s, decision, entries.first + j);
      above += key > decision.threshold ? 1 : 0;
      equal += key == decision.threshold ? 1 : 0;
    }
    above = warp_sum(above);
    equal = warp_sum(equal);
  }
  if (lane() == 0) s.chosen[tile] = uint64_t{above} << 32 | equal;
}

// After scan_tiles over s.chosen. `work` is null where nothing is taken out, `count` where it is
// known.
static __global__ void __launch_bounds__(kTileThreads)
    write_chosen(Selection s, uint32_t* indices, float* values, float* work, uint64_t* count) {
  const Decision decision = final_decision(s);
  const uint32_t tile = tile_of_warp();
  if (tile == 0 && lane() == 0 && count != nullptr) *count = decision.k;
  if (tile == 0 && lane() == 0 && s.reached != nullptr) s.reached->passed = s.state->found;
  if (tile >= s.n_tiles) return;  // whole warps
  const TileEntries entries = entries_of(s, decision, tile);
  uint32_t equal = static_cast<uint32_t>(s.chosen[tile]);  // ties before those looked at
  uint32_t to =
      static_cast<uint32_t>(s.chosen[tile] >> 32) + (equal < decision.ties ? equal : decision.ties);
  uint32_t smallest = kInfinityKey + 1;
  for (uint32_t j = 0; j < entries.count; j += kWarp) {
    const bool exists = j + lane() < entries.count;
    const uint64_t at = entries.first + j + lane();
    const uint32_t key = exists ? key_at(s, decision, at) : 0;
    const uint32_t ties = __ballot_sync(kAllLanes, exists && key == decision.threshold);
    const bool tie = exists && key == decision.threshold &&
                     equal + __popc(ties & lanes_before()) < decision.ties;
    const bool take = exists && (key > decision.threshold || tie);
    const uint32_t taken = __ballot_sync(kAllLanes, take);
    if (take) {
      const uint32_t index = decision.from_all ? static_cast<uint32_t>(at) : s.indices[at];
      const uint32_t position = to + __popc(taken & lanes_before());
      indices[position] = index;
      if (values != nullptr) values[position] = s.x[index];
      if (work != nullptr) work[index] = 0;
      smallest = key < smallest ? key : smallest;
    }
    equal += __popc(ties);
    to += __popc(taken);
  }
  if (s.reached == nullptr) return;
  smallest = warp_smallest(smallest);
  if (lane() == 0) atomicMin(&s.reached->smallest, smallest);
}

// Without a choice: all n entries.
static __global__ void __launch_bounds__(kElementThreads)
    write_everything(const float* x, uint64_t n, uint32_t* indices, float* values, float* work) {
  const uint64_t i = uint64_t{blockIdx.x} * kElementThreads + threadIdx.x;
  if (i >= n) return;
  indices[i] = static_cast<uint32_t>(i);
  if (values != nullptr) values[i] = x[i];
  if (work != nullptr) work[i] = 0;
}

static __global__ void __launch_bounds__(kWarp) write_magnitude(Selection s, float* magnitude) {
  if (threadIdx.x == 0) *magnitude = std::bit_cast<float>(final_decision(s).threshold);
}

}  // namespace penstock::kernels::cuda

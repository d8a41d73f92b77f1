// The kernels of selections, in the order in which they run. Internal to the CUDA kernels.
//
//   begin_selections                     what is to be done, and the key that candidates must reach
//   collect (select_collect.cuh)         the one pass over the input: candidates, tile by tile
//   find_digit<0>, <1>, <2>              the k-th largest key among them
//   count_chosen, scan_chosen            where each tile writes
//   write_chosen                         indices and values; zeroes what is taken
#pragma once

#include <kernels/cuda/block.cuh>
#include <kernels/cuda/fold.cuh>
#include <kernels/cuda/scan.cuh>
#include <kernels/cuda/select_collect.cuh>
#include <kernels/cuda/select_plan.hpp>
#include <kernels/element/keys.hpp>

namespace penstock::kernels::cuda {

// ---- The bound ----

template <uint32_t kForm>
__device__ float value_at(const Selection& s, uint64_t i) {
  if constexpr (kForm == PENSTOCK_FORM_NONE) {
    return s.x[i * s.stride];
  } else {
    FoldInput in = load_fold<kForm>(s.fold, i);
    return apply_fold<kForm>(s.fold, in);
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

// Positions are one per stride, scattered by a hash, so that no period of the data meets them.
template <uint32_t kForm>
__device__ void read_sample(const Selection& s, uint32_t* keys) {
  const uint64_t stride = s.n / kSamples;
#pragma unroll
  for (uint32_t j = 0; j < kSampleItems; ++j) {
    const uint64_t sample = uint64_t{j} * kSampleThreads + threadIdx.x;
    const uint64_t scattered = ((sample * 0x9E3779B97F4A7C15u) >> 32) * stride >> 32;
    keys[j] = magnitude_key(value_at<kForm>(s, sample * stride + scattered));
  }
}

// The keys of the sample stay in registers.
__device__ inline uint32_t sampled_bound(const Selection& s) {
  __shared__ uint32_t histogram[kDigitBins];
  __shared__ uint32_t sums[kSampleThreads / kWarp];
  __shared__ Bin found;
  uint32_t keys[kSampleItems];
  with_form(s.fold.form, [&]<uint32_t kForm>() { read_sample<kForm>(s, keys); });
  uint32_t prefix = 0;
  uint32_t rank = s.sample_rank;
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
  return prefix > 1 ? prefix : 1;
}

__device__ inline float threshold_of(const Selection& s) {
  return s.threshold == nullptr ? s.known_threshold : *s.threshold;
}

// Without a threshold every entry but zeros is a candidate; where nothing goes, none is.
__device__ inline uint32_t known_bound(const Selection& s) {
  if (s.k == 0) return kInfinityKey + 1;
  return s.count == nullptr ? 1 : threshold_key(threshold_of(s));
}

// A block to each selection.
static __global__ void __launch_bounds__(kSampleThreads)
    begin_selections(BegunSelections begun, Selections selections) {
  const Selection& s = begun.all[blockIdx.x];
  const bool is_first = threadIdx.x == 0;
  if (is_first) {
    const uint32_t which = begun.first + blockIdx.x;
    selections.all[which] = s;
    selections.first_tiles[which] = begun.first_tiles[blockIdx.x];
    selections.first_digit_blocks[which] = begun.first_digit_blocks[blockIdx.x];
  }
  if (s.n == 0) {  // it has no tiles, and none of what follows
    if (is_first && s.count != nullptr) *s.count = 0;
    return;
  }
  auto* const words = reinterpret_cast<uint32_t*>(s.state);
  for (uint32_t i = threadIdx.x; i < sizeof(SelectState) / sizeof(uint32_t); i += kSampleThreads)
    words[i] = 0;
  const uint32_t bound = s.sample_rank > 0 ? sampled_bound(s) : known_bound(s);
  __syncthreads();  // the zeros lie there
  if (!is_first) return;
  s.state->bound = bound;
  s.state->found = s.capacity == 0 ? 1 : 0;  // more than there is room for
  s.state->zeros_fill = s.zeros_reach_zero && threshold_of(s) == 0 ? 1 : 0;
  if (s.reached != nullptr) s.reached->smallest = kInfinityKey + 1;
}

// ---- The threshold ----

__device__ inline bool goes_up_to_k(const Selection& s) {
  return s.count != nullptr && s.state->zeros_fill == 0;
}

__device__ inline Decision decision_of(const Selection& s) {
  return decide(s, s.state->found, s.state->bound, goes_up_to_k(s));
}

// Adds up a histogram of one digit over the keys that begin as the k-th largest does; the last
// block to finish reads off the digit.
template <uint32_t kDigit>
__global__ void __launch_bounds__(kDigitThreads) find_digit(Selections selections) {
  __shared__ uint32_t histogram[kDigitBins];
  __shared__ uint32_t sums[kDigitThreads / kWarp];
  __shared__ Bin found;
  const uint32_t which = selection_at(selections.first_digit_blocks, selections.n, blockIdx.x);
  const uint32_t block = blockIdx.x - selections.first_digit_blocks[which];
  const Selection s = selections.all[which];
  const uint32_t n_blocks = digit_blocks(s.n);
  const Decision decision = decision_of(s);
  if (decision.known) return;  // all threads of all its blocks
  for (uint32_t b = threadIdx.x; b < kDigitBins; b += kDigitThreads) histogram[b] = 0;
  __syncthreads();
  const uint32_t prefix = kDigit == 0 ? 0 : s.state->prefix[kDigit == 0 ? 0 : kDigit - 1];
  const uint64_t n = decision.from_all ? s.n : s.state->found;
  const uint64_t step = uint64_t{n_blocks} * kDigitThreads;
  for (uint64_t i = uint64_t{block} * kDigitThreads + threadIdx.x; i < n; i += step) {
    const uint32_t key = decision.from_all ? magnitude_key(s.x[i * s.stride]) : s.keys[i];
    if (before_digit(key, kDigit) == prefix) atomicAdd(&histogram[digit_of(key, kDigit)], 1u);
  }
  __syncthreads();
  uint32_t* const all = s.state->histogram[kDigit];
  for (uint32_t b = threadIdx.x; b < kDigitBins; b += kDigitThreads)
    if (histogram[b] != 0) atomicAdd(&all[b], histogram[b]);
  if (!last_block(&s.state->arrived[kDigit], n_blocks)) return;
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
  const bool fills_instead = s.zeros_fill_instead && s.state->found < s.least;
  if (goes_up_to_k(s) && !fills_instead && decision.threshold == 0) {  // zeros do not go
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

// A warp takes one tile of the `n_tiles` of all selections.
struct TileOfSelection {
  uint32_t which;
  uint32_t tile;  // of that selection's
};
__device__ inline TileOfSelection tile_of_warp(const Selections& selections, uint32_t position) {
  const uint32_t which = selection_at(selections.first_tiles, selections.n, position);
  return {which, position - selections.first_tiles[which]};
}
__device__ inline uint32_t position_of_warp() {
  return blockIdx.x * kTileWarps + warp_of_block();
}

// How many keys of each tile lie above the threshold and how many at it.
static __global__ void __launch_bounds__(kTileThreads)
    count_chosen(Selections selections, uint32_t n_tiles) {
  if (position_of_warp() >= n_tiles) return;  // whole warps
  const auto [which, tile] = tile_of_warp(selections, position_of_warp());
  const Selection s = selections.all[which];
  const Decision decision = final_decision(s);
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

// A block to each selection.
static __global__ void __launch_bounds__(kScanThreads) scan_chosen(Selections selections) {
  const Selection s = selections.all[blockIdx.x];
  scan_counts(s.chosen, s.n_tiles, nullptr);
}

static __global__ void __launch_bounds__(kTileThreads)
    write_chosen(Selections selections, uint32_t n_tiles) {
  if (position_of_warp() >= n_tiles) return;  // whole warps
  const auto [which, tile] = tile_of_warp(selections, position_of_warp());
  const Selection s = selections.all[which];
  const Decision decision = final_decision(s);
  if (tile == 0 && lane() == 0 && s.count != nullptr) *s.count = decision.k;
  if (tile == 0 && lane() == 0 && s.reached != nullptr) s.reached->passed = s.state->found;
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
      const uint32_t index = decision.from_all ? static_cast<uint32_t>(at) : s.candidates[at];
      const uint32_t position = to + __popc(taken & lanes_before());
      s.indices[position] = index;
      if (s.values != nullptr) s.values[position] = s.x[index];
      if (s.work != nullptr) s.work[index] = 0;
      smallest = key < smallest ? key : smallest;
    }
    equal += __popc(ties);
    to += __popc(taken);
  }
  if (s.reached == nullptr) return;
  smallest = warp_smallest(smallest);
  if (lane() == 0) atomicMin(&s.reached->smallest, smallest);
}

// One warp, of the only selection.
static __global__ void __launch_bounds__(kWarp)
    write_magnitude(Selections selections, float* magnitude) {
  const Selection s = selections.all[0];
  if (threadIdx.x == 0) *magnitude = std::bit_cast<float>(final_decision(s).threshold);
}

}  // namespace penstock::kernels::cuda

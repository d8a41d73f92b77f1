// The kernels of selections, in the order in which they run. Internal to the CUDA kernels.
//
//   begin_selections                     the requests, and the key that candidates must reach
//   collect (select_collect.cuh)         the one pass over the input: candidates, tile by tile
//   find_digit<0>, <1>, <2>              the k-th largest key among the candidates
//   count_chosen, scan_chosen            the place where each tile writes (select_write.cuh)
//   write_chosen (select_write.cuh)      indices and values; zeroes the taken entries
#pragma once

#include <kernels/cuda/block.cuh>
#include <kernels/cuda/fold.cuh>
#include <kernels/cuda/select_collect.cuh>
#include <kernels/cuda/select_plan.hpp>
#include <kernels/element/keys.hpp>

namespace penstock::kernels::cuda {

// ---- The bound ----

template <uint32_t kForm>
__device__ float value_at(const Selection& s, uint64_t i) {
  if constexpr (kForm == PENSTOCK_FORM_NONE) {
    return s.x[uint64_t{s.stride} * i];
  } else {
    FoldInput in = load_fold<kForm>(s.fold, i);
    return apply_fold<kForm>(s.fold, in);
  }
}

__device__ inline uint32_t digit_of(uint32_t key, uint32_t digit) {
  return digit == 0 ? key >> 20 : digit == 1 ? (key >> 10) & 1023u : key & 1023u;
}
// The digits of a key before `digit`.
__device__ inline uint32_t before_digit(uint32_t key, uint32_t digit) {
  return digit == 0 ? 0u : digit == 1 ? key >> 20 : key >> 10;
}
__device__ inline uint32_t append_digit(uint32_t prefix, uint32_t bin, uint32_t digit) {
  return digit == 0 ? bin : prefix << 10 | bin;
}

// A hash scatters the positions, one per stride, so that they do not match a period of the data.
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
  // The last digit would exclude almost no candidate.
  for (uint32_t digit = 0; digit < kDigits - 1; ++digit) {
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
  const uint32_t bound = append_digit(prefix, 0, kDigits - 1);
  return bound > 1 ? bound : 1;
}

__device__ inline float threshold_of(const Selection& s) {
  return s.threshold == nullptr ? s.known_threshold : *s.threshold;
}

// Without a threshold, every entry but zeros is a candidate; if k is 0, no entry is a candidate.
__device__ inline uint32_t known_bound(const Selection& s) {
  if (s.k == 0) return kInfinityKey + 1;
  return s.count == nullptr ? 1 : threshold_key(threshold_of(s));
}

// One block per selection.
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
  if (s.n == 0) {  // it has no tiles, and the later kernels skip it
    if (is_first && s.count != nullptr) *s.count = 0;
    return;
  }
  auto* const words = reinterpret_cast<uint32_t*>(s.state);
  for (uint32_t i = threadIdx.x; i < sizeof(SelectState) / sizeof(uint32_t); i += kSampleThreads)
    words[i] = 0;
  const uint32_t bound = s.sample_rank > 0 ? sampled_bound(s) : known_bound(s);
  __syncthreads();  // the zeros are written
  if (!is_first) return;
  s.state->bound = bound;
  s.state->found = s.capacity == 0 ? 1 : 0;  // more candidates than room
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

// Adds up a histogram of one digit over the keys with the prefix of the k-th largest key. The last
// block to finish finds the digit.
template <uint32_t kDigit>
__global__ void __launch_bounds__(kDigitThreads) find_digit(Selections selections) {
  __shared__ uint32_t histogram[kDigitBins];
  __shared__ uint32_t sums[kDigitThreads / kWarp];
  __shared__ Bin found;
  const uint32_t which = selection_at(selections.first_digit_blocks, selections.n, blockIdx.x);
  const uint32_t block = blockIdx.x - selections.first_digit_blocks[which];
  const Selection s = selections.all[which];
  const uint32_t n_blocks = digit_blocks(s.n, s.capacity);
  const Decision decision = decision_of(s);
  if (decision.known) return;  // all threads of all blocks of the selection
  for (uint32_t b = threadIdx.x; b < kDigitBins; b += kDigitThreads) histogram[b] = 0;
  __syncthreads();
  const uint32_t prefix = kDigit == 0 ? 0 : s.state->prefix[kDigit == 0 ? 0 : kDigit - 1];
  const uint64_t n = decision.from_all ? s.n : s.state->found;
  const uint64_t step = uint64_t{n_blocks} * kDigitThreads;
  for (uint64_t first = uint64_t{block} * kDigitThreads + threadIdx.x; first < n;
       first += kDigitLoads * step) {
    uint32_t keys[kDigitLoads];
#pragma unroll
    for (uint32_t j = 0; j < kDigitLoads; ++j) {
      const uint64_t i = first + j * step;
      if (i < n)
        keys[j] =
            decision.from_all ? magnitude_key(s.x[uint64_t{s.stride} * i]) : s.bits[i] & kMagnitude;
    }
#pragma unroll
    for (uint32_t j = 0; j < kDigitLoads; ++j)
      if (first + j * step < n && before_digit(keys[j], kDigit) == prefix)
        atomicAdd(&histogram[digit_of(keys[j], kDigit)], 1u);
  }
  __syncthreads();
  const uint32_t* all = histogram;  // the histogram of a single block
  if (n_blocks > 1) {
    uint32_t* const of_all = s.state->histogram[kDigit];
    for (uint32_t b = threadIdx.x; b < kDigitBins; b += kDigitThreads)
      if (histogram[b] != 0) atomicAdd(&of_all[b], histogram[b]);
    if (!last_block(&s.state->arrived[kDigit], n_blocks)) return;
    all = of_all;
  }
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
  if (goes_up_to_k(s) && !fills_instead && decision.threshold == 0) {  // zeros are not chosen
    decision.k -= decision.ties;
    decision.ties = 0;
  }
  return decision;
}

// Writes the k-th largest magnitude of the only selection; one warp.
static __global__ void __launch_bounds__(kWarp)
    write_magnitude(Selections selections, float* magnitude) {
  const Selection s = selections.all[0];
  if (threadIdx.x == 0) *magnitude = std::bit_cast<float>(final_decision(s).threshold);
}

}  // namespace penstock::kernels::cuda

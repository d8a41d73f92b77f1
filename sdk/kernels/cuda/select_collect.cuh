// The one pass of a selection over its input: it compensates the input if the fold has a form, and
// collects the entries that reach the bound. Internal to the CUDA kernels.
//
// A warp owns consecutive entries of a tile, in rows with four entries per lane, so that loads are
// as wide as possible. A thread has one bit for each of its entries that tells whether the entry
// reaches the bound; only warps with such an entry count them by lanes.
#pragma once

#include <kernels/cuda/block.cuh>
#include <kernels/cuda/fold.cuh>
#include <kernels/cuda/select_plan.hpp>
#include <kernels/element/keys.hpp>

#include <bit>

namespace penstock::kernels::cuda {

// The selection of block or tile `position`, which is numbered over all selections: the last
// selection that begins at or before it. A selection without blocks begins where the next selection
// does. All lanes of a warp must call it.
__device__ inline uint32_t selection_at(const uint32_t* firsts, uint32_t n, uint32_t position) {
  if (n == 1) return 0;
  uint32_t begun = 0;
  for (uint32_t i = 0; i < n; i += kWarp) {
    const bool begins = i + lane() < n && firsts[i + lane()] <= position;
    begun += __popc(__ballot_sync(kAllLanes, begins));
  }
  return begun - 1;
}

inline constexpr uint32_t kMagnitude = 0x7fffffffu;  // all bits of a float except its sign
inline constexpr uint32_t kFour = 4;                 // floats in 16 bytes
inline constexpr uint32_t kFours = kCollectItems / kFour;
inline constexpr uint32_t kRowOfFours = kFour * kWarp;
static_assert(kFours * kRowOfFours * kCollectThreads / kWarp == kCollectTile);

struct alignas(kFour * sizeof(float)) Four {
  float at[kFour];
};

// The entries i to i + 3 of n. kWide: all four exist, and the array is aligned to 16 bytes.
template <bool kWide>
__device__ Four load_four(const float* from, uint32_t i, uint32_t n) {
  if constexpr (kWide) {
    return *reinterpret_cast<const Four*>(from + i);
  } else {
    Four four{};
#pragma unroll
    for (uint32_t c = 0; c < kFour; ++c)
      if (i + c < n) four.at[c] = from[i + c];
    return four;
  }
}
template <bool kWide>
__device__ void store_four(float* to, uint32_t i, uint32_t n, const Four& four) {
  if constexpr (kWide) {
    *reinterpret_cast<Four*>(to + i) = four;
  } else {
#pragma unroll
    for (uint32_t c = 0; c < kFour; ++c)
      if (i + c < n) to[i + c] = four.at[c];
  }
}

// Whether 16 bytes can be loaded at the beginning of every row.
template <uint32_t kForm>
__device__ bool lies_wide(const Selection& s) {
  auto bits = reinterpret_cast<uintptr_t>(s.x);
  if constexpr (kForm != PENSTOCK_FORM_NONE)
    bits |=
        reinterpret_cast<uintptr_t>(s.fold.work_from()) | reinterpret_cast<uintptr_t>(s.fold.grad);
  if constexpr (kForm == PENSTOCK_FORM_HEAVY_BALL || kForm == PENSTOCK_FORM_NESTEROV)
    bits |= reinterpret_cast<uintptr_t>(s.fold.momentum) |
            reinterpret_cast<uintptr_t>(s.fold.momentum_from());
  return bits % sizeof(Four) == 0;
}

inline constexpr uint32_t kEachForm = PENSTOCK_FORM_NESTEROV + 1;

// The rows whose loads are in flight at a time, and the blocks per multiprocessor; registers limit
// both.
template <uint32_t kForm, bool kWide>
inline constexpr uint32_t kFoursInFlight =
    kWide&& kForm == PENSTOCK_FORM_NONE ? kFours : kFours / 2;
template <uint32_t kForm>
inline constexpr uint32_t kCollectBlocks = kForm == PENSTOCK_FORM_NONE ? 6 : 4;

// The first entry of a tile of the input, and its number of entries.
struct Tile {
  uint32_t first;
  uint32_t n;
};

// The data that is read for four entries of a row: only the data that the form needs.
template <uint32_t kForm>
struct FourOfFold {
  Four work, grad, momentum;
};
template <uint32_t kForm, bool kWide>
__device__ FourOfFold<kForm> load_fours(const Selection& s, const Tile& tile, uint32_t i) {
  if constexpr (kForm == PENSTOCK_FORM_NONE) {
    return {load_four<kWide>(s.x + tile.first, i, tile.n), {}, {}};
  } else {
    FourOfFold<kForm> in{load_four<kWide>(s.fold.work_from() + tile.first, i, tile.n),
                         load_four<kWide>(s.fold.grad + tile.first, i, tile.n),
                         {}};
    if constexpr (kForm != PENSTOCK_FORM_AFFINE)
      in.momentum = load_four<kWide>(s.fold.momentum_from() + tile.first, i, tile.n);
    return in;
  }
}

// The new work of four entries; `in` receives the new momentum.
template <uint32_t kForm>
__device__ Four compensated(const Fold& fold, FourOfFold<kForm>& in) {
  if constexpr (kForm == PENSTOCK_FORM_NONE) {
    return in.work;
  } else {
    Four out;
#pragma unroll
    for (uint32_t c = 0; c < kFour; ++c) {
      FoldInput one{in.work.at[c], in.grad.at[c], in.momentum.at[c]};
      out.at[c] = apply_fold<kForm>(fold, one);
      in.momentum.at[c] = one.momentum;
    }
    return out;
  }
}

// Reads, compensates and stores the entries of a thread, from entry `mine` of the tile on, and
// gives their bits; 0 for entries that do not exist.
template <uint32_t kForm, bool kWide>
__device__ void read_tile(const Selection& s, const Tile& tile, uint32_t mine,
                          uint32_t (&bits)[kCollectItems]) {
  constexpr uint32_t kInFlight = kFoursInFlight<kForm, kWide>;
#pragma unroll
  for (uint32_t begin = 0; begin < kFours; begin += kInFlight) {
    FourOfFold<kForm> in[kInFlight];
#pragma unroll
    for (uint32_t r = 0; r < kInFlight; ++r)
      in[r] = load_fours<kForm, kWide>(s, tile, mine + (begin + r) * kRowOfFours);
#pragma unroll
    for (uint32_t r = 0; r < kInFlight; ++r) {
      const uint32_t i = mine + (begin + r) * kRowOfFours;
      const Four work = compensated<kForm>(s.fold, in[r]);
      if constexpr (kForm != PENSTOCK_FORM_NONE)
        store_four<kWide>(s.fold.work + tile.first, i, tile.n, work);
      if constexpr (kForm == PENSTOCK_FORM_HEAVY_BALL || kForm == PENSTOCK_FORM_NESTEROV)
        store_four<kWide>(s.fold.momentum + tile.first, i, tile.n, in[r].momentum);
#pragma unroll
      for (uint32_t c = 0; c < kFour; ++c)
        bits[(begin + r) * kFour + c] =
            kWide || i + c < tile.n ? std::bit_cast<uint32_t>(work.at[c]) : 0;
    }
  }
}

template <uint32_t kForm>
__device__ void read_tile_of(const Selection& s, const Tile& tile, uint32_t mine,
                             uint32_t (&bits)[kCollectItems]) {
  if (tile.n == kCollectTile && lies_wide<kForm>(s))
    read_tile<kForm, true>(s, tile, mine, bits);
  else
    read_tile<kForm, false>(s, tile, mine, bits);
}

// Turns one bit per entry of a thread into counts, one byte per row. The sum over a warp's lanes is
// at most 128 per row, so bytes add up without a carry.
__device__ inline uint32_t counts_of_rows(uint32_t reached) {
  static_assert(kFours == 4 && kRowOfFours < 256);
  return __popc(reached & 0xfu) | __popc(reached & 0xf0u) << 8 | __popc(reached & 0xf00u) << 16 |
         __popc(reached & 0xf000u) << 24;
}
__device__ inline uint32_t sum_of_bytes(uint32_t bytes) {
  return (bytes & 0xffu) + (bytes >> 8 & 0xffu) + (bytes >> 16 & 0xffu) + (bytes >> 24);
}

// A block takes one tile. All selections have form kForm; kEachForm means that each selection has
// its own form.
template <uint32_t kForm>
__global__ void __launch_bounds__(kCollectThreads, kCollectBlocks<kForm>)
    collect(Selections selections) {
  constexpr uint32_t kWarps = kCollectThreads / kWarp;
  __shared__ uint32_t counts[kWarps];
  __shared__ uint32_t begin;
  const uint32_t which = selection_at(selections.first_tiles, selections.n, blockIdx.x);
  const uint32_t tile = blockIdx.x - selections.first_tiles[which];
  const Selection& s = selections.all[which];  // fields that are used last are loaded last
  const Selection input = s;
  const uint32_t bound = input.state->bound;
  const uint32_t left = input.n - tile * kCollectTile;
  const Tile of_input{tile * kCollectTile, left < kCollectTile ? left : kCollectTile};
  const uint32_t first = warp_of_block() * kFours * kRowOfFours + lane() * kFour;
  uint32_t bits[kCollectItems];
  if constexpr (kForm == kEachForm)
    with_form(input.fold.form,
              [&]<uint32_t kOwn>() { read_tile_of<kOwn>(input, of_input, first, bits); });
  else
    read_tile_of<kForm>(input, of_input, first, bits);

  // Bit j is for the thread's entry j. Keys and bounds have 31 bits, so the sign of the difference
  // decides.
  uint32_t reached = 0;
#pragma unroll
  for (uint32_t j = kCollectItems; j-- > 0;)
    reached = reached << 1 | (bound - 1 - magnitude_key(std::bit_cast<float>(bits[j]))) >> 31;
  // Without this the compiler keeps sixteen differences instead of their signs, and spills them.
  asm volatile("" : "+r"(reached));
  uint32_t mine = 0, inclusive = 0, of_rows = 0;  // one byte per row
  if (__ballot_sync(kAllLanes, reached != 0) != 0) {
    mine = counts_of_rows(reached);
    inclusive = warp_inclusive_sum(mine);
    of_rows = __shfl_sync(kAllLanes, inclusive, kWarp - 1);
  }
  if (lane() == 0) counts[warp_of_block()] = sum_of_bytes(of_rows);
  __syncthreads();
  uint32_t before = 0, total = 0;
#pragma unroll
  for (uint32_t w = 0; w < kWarps; ++w) {
    before += w < warp_of_block() ? counts[w] : 0;
    total += counts[w];
  }
  if (threadIdx.x == 0) {
    begin = total == 0 ? 0 : atomicAdd(&s.state->found, total);
    s.tiles[tile] = {begin, total};
  }
  if (total == 0) return;  // all threads
  __syncthreads();
  // If there are too many candidates, all entries will compete, and no kernel reads the candidates.
  if (uint64_t{begin} + total > s.capacity || reached == 0) return;
  uint32_t row = begin + before;
#pragma unroll
  for (uint32_t r = 0; r < kFours; ++r) {
    uint32_t at = row + ((inclusive - mine) >> 8 * r & 0xffu);
    row += of_rows >> 8 * r & 0xffu;
#pragma unroll
    for (uint32_t c = 0; c < kFour; ++c) {
      if ((reached >> (r * kFour + c) & 1u) == 0) continue;
      s.candidates[at] = of_input.first + first + r * kRowOfFours + c;
      s.bits[at++] = bits[r * kFour + c];
    }
  }
}

}  // namespace penstock::kernels::cuda

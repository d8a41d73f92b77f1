// Writes a selection once its threshold is known: the chosen entries of each tile are counted, a
// sum over tiles gives the place where each tile writes, and the entries are written. Internal to
// the CUDA kernels.
#pragma once

#include <kernels/cuda/scan.cuh>
#include <kernels/cuda/select.cuh>

#include <bit>

namespace penstock::kernels::cuda {

// The entries of a tile: entries of the input, or the tile's candidates.
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

// The work for one tile.
struct TileTask {
  Selection s;
  Decision decision;
  uint32_t tile;  // index among the tiles of the selection
  TileEntries entries;
};
__device__ inline TileTask task_at(const Selections& selections, uint32_t position) {
  const uint32_t which = selection_at(selections.first_tiles, selections.n, position);
  const uint32_t tile = position - selections.first_tiles[which];
  const Selection s = selections.all[which];
  const Decision decision = final_decision(s);
  return {s, decision, tile, entries_of(s, decision, tile)};
}

// Calls use.template operator()<kTeam>(task) for each tile of a block, where kTeam warps work on
// the tile together: one warp if there are few entries, else all warps of the block. All threads
// must call it.
template <typename Use>
__device__ void each_tile(const Selections& selections, uint32_t n_tiles, Use&& use) {
  __shared__ uint32_t counts[kTileWarps];
  const uint32_t most = tiles_of_block(n_tiles);
  const uint32_t first = blockIdx.x * most;
  const uint32_t n = n_tiles - first < most ? n_tiles - first : most;
  if (warp_of_block() < n) {
    const TileTask task = task_at(selections, first + warp_of_block());
    if (lane() == 0) counts[warp_of_block()] = task.entries.count;
    if (task.entries.count <= kLoneEntries) use.template operator()<1>(task);
  }
  __syncthreads();
  for (uint32_t t = 0; t < n; ++t)
    if (counts[t] > kLoneEntries)
      use.template operator()<kTileWarps>(task_at(selections, first + t));
}

// Some entries of a tile, from this warp's first entry on. An entry that does not exist has a key
// below all other keys.
struct Stretch {
  uint32_t bits[kTileRows];
  int32_t keys[kTileRows];
};
// All loads are in flight before the first value is used.
__device__ inline Stretch read_stretch(const TileTask& task, uint32_t first) {
  Stretch stretch;
#pragma unroll
  for (uint32_t r = 0; r < kTileRows; ++r) {
    const uint32_t j = first + r * kWarp + lane();
    const uint64_t at = task.entries.first + j;
    stretch.bits[r] = 0;
    if (j < task.entries.count)
      stretch.bits[r] =
          task.decision.from_all ? std::bit_cast<uint32_t>(task.s.x[at]) : task.s.bits[at];
  }
#pragma unroll
  for (uint32_t r = 0; r < kTileRows; ++r) {
    const uint32_t key = magnitude_key(std::bit_cast<float>(stretch.bits[r]));
    stretch.keys[r] =
        first + r * kWarp + lane() < task.entries.count ? static_cast<int32_t>(key) : -1;
  }
  return stretch;
}

// The number of keys above the threshold in the upper half, and of keys equal to it in the lower
// half.
constexpr uint64_t above_and_equal(uint32_t above, uint32_t equal) {
  return uint64_t{above} << 32 | equal;
}

// The sum of one number per warp over the warps of a team before this warp; `total` receives the
// sum over all warps. The whole team must call it.
template <uint32_t kTeam>
__device__ uint64_t sum_before(uint64_t of_warp, uint64_t& total) {
  if constexpr (kTeam == 1) {
    total = of_warp;
    return 0;
  } else {
    __shared__ uint64_t sums[kTeam];
    if (lane() == 0) sums[warp_of_block()] = of_warp;
    __syncthreads();
    uint64_t before = 0;
    total = 0;
#pragma unroll
    for (uint32_t w = 0; w < kTeam; ++w) {
      before += w < warp_of_block() ? sums[w] : 0;
      total += sums[w];
    }
    __syncthreads();
    return before;
  }
}

template <uint32_t kTeam>
__device__ uint32_t warp_of_team() {
  return kTeam == 1 ? 0 : warp_of_block();
}

struct CountTile {
  template <uint32_t kTeam>
  __device__ void operator()(const TileTask& task) const;
};
template <uint32_t kTeam>
__device__ void CountTile::operator()(const TileTask& task) const {
  const Decision& decision = task.decision;
  uint64_t total = above_and_equal(task.entries.count, 0);
  if (!decision.known || decision.from_all) {
    const auto threshold = static_cast<int32_t>(decision.threshold);
    uint32_t above = 0, equal = 0;
    for (uint32_t first = warp_of_team<kTeam>() * kStretch; first < task.entries.count;
         first += kTeam * kStretch) {
      const Stretch stretch = read_stretch(task, first);
#pragma unroll
      for (uint32_t r = 0; r < kTileRows; ++r) {
        above += stretch.keys[r] > threshold ? 1 : 0;
        equal += stretch.keys[r] == threshold ? 1 : 0;
      }
    }
    (void)sum_before<kTeam>(warp_sum(above_and_equal(above, equal)), total);
  }
  if (warp_of_team<kTeam>() == 0 && lane() == 0) task.s.chosen[task.tile] = total;
}

// Counts the keys of each tile above the threshold and the keys equal to it.
static __global__ void __launch_bounds__(kTileThreads)
    count_chosen(Selections selections, uint32_t n_tiles) {
  each_tile(selections, n_tiles, CountTile{});
}

// A block to each selection.
static __global__ void __launch_bounds__(kScanThreads) scan_chosen(Selections selections) {
  const Selection s = selections.all[blockIdx.x];
  scan_counts(s.chosen, s.n_tiles, nullptr);
}

// Writes the chosen entries of a stretch; `before` counts the keys before it, as above_and_equal
// does.
__device__ inline void write_stretch(const TileTask& task, uint32_t first, const Stretch& stretch,
                                     uint64_t before, uint32_t& smallest) {
  constexpr uint32_t kNowhere = 0xffffffffu;  // behind any position
  const Selection& s = task.s;
  const auto threshold = static_cast<int32_t>(task.decision.threshold);
  uint32_t equal = static_cast<uint32_t>(before);
  uint32_t to = static_cast<uint32_t>(before >> 32) +
                (equal < task.decision.ties ? equal : task.decision.ties);
  uint32_t positions[kTileRows], indices[kTileRows];
#pragma unroll
  for (uint32_t r = 0; r < kTileRows; ++r) {
    const int32_t key = stretch.keys[r];
    const uint32_t ties = __ballot_sync(kAllLanes, key == threshold);
    const bool tie = key == threshold && equal + __popc(ties & lanes_before()) < task.decision.ties;
    const bool take = key > threshold || tie;
    const uint32_t taken = __ballot_sync(kAllLanes, take);
    positions[r] = take ? to + __popc(taken & lanes_before()) : kNowhere;
    if (take && static_cast<uint32_t>(key) < smallest) smallest = static_cast<uint32_t>(key);
    equal += __popc(ties);
    to += __popc(taken);
  }
#pragma unroll
  for (uint32_t r = 0; r < kTileRows; ++r) {
    const uint64_t at = task.entries.first + first + r * kWarp + lane();
    indices[r] = static_cast<uint32_t>(at);
    if (!task.decision.from_all && positions[r] != kNowhere) indices[r] = s.candidates[at];
  }
#pragma unroll
  for (uint32_t r = 0; r < kTileRows; ++r) {
    if (positions[r] == kNowhere) continue;
    s.indices[positions[r]] = indices[r];
    if (s.values != nullptr) s.values[positions[r]] = std::bit_cast<float>(stretch.bits[r]);
    if (s.work != nullptr) s.work[indices[r]] = 0;
  }
}

struct WriteTile {
  template <uint32_t kTeam>
  __device__ void operator()(const TileTask& task) const;
};
template <uint32_t kTeam>
__device__ void WriteTile::operator()(const TileTask& task) const {
  const Selection& s = task.s;
  if (task.tile == 0 && warp_of_team<kTeam>() == 0 && lane() == 0) {
    if (s.count != nullptr) *s.count = task.decision.k;
    if (s.reached != nullptr) s.reached->passed = s.state->found;
  }
  const auto threshold = static_cast<int32_t>(task.decision.threshold);
  uint64_t before = s.chosen[task.tile];  // includes the ties before this tile
  uint32_t smallest = kInfinityKey + 1;
  for (uint32_t begin = 0; begin < task.entries.count; begin += kTeam * kStretch) {
    const uint32_t first = begin + warp_of_team<kTeam>() * kStretch;
    const Stretch stretch = read_stretch(task, first);
    uint32_t above = 0, equal = 0;
#pragma unroll
    for (uint32_t r = 0; r < kTileRows; ++r) {
      above += __popc(__ballot_sync(kAllLanes, stretch.keys[r] > threshold));
      equal += __popc(__ballot_sync(kAllLanes, stretch.keys[r] == threshold));
    }
    uint64_t total;
    const uint64_t before_warp = sum_before<kTeam>(above_and_equal(above, equal), total);
    if (above + equal > 0) write_stretch(task, first, stretch, before + before_warp, smallest);
    before += total;
  }
  if (s.reached == nullptr) return;
  smallest = warp_smallest(smallest);
  if (lane() == 0) atomicMin(&s.reached->smallest, smallest);
}

static __global__ void __launch_bounds__(kTileThreads, 4)
    write_chosen(Selections selections, uint32_t n_tiles) {
  each_tile(selections, n_tiles, WriteTile{});
}

}  // namespace penstock::kernels::cuda

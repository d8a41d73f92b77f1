// Packs signs into planes of bits; see sign.hpp. A warp reads 32 elements and votes on them: the
// result is a half word of the plane. Lane l keeps the l-th of 32 votes, so that the warp then
// writes 32 neighbouring half words. The kernels, in the order in which they run:
//
//   pack_negative   the one pass over all elements, which also compensates: the plane of negative
//                   elements, and the number of zeros of each tile
//   scan_tiles      the place where each tile lists its zeros, and their total number
//   name_zeros      the list, or the plane of nonzero elements, and both counts
//
// If there are few tiles, each block of name_zeros_of_few adds up the counts itself, without a
// scan. If there is a single tile, one block does all work (pack_and_name).
#include <kernels/cuda/block.cuh>
#include <kernels/cuda/fold.cuh>
#include <kernels/cuda/queue.hpp>
#include <kernels/cuda/scan.cuh>
#include <kernels/cuda/sign.hpp>

namespace penstock::kernels::cuda {
namespace {

constexpr uint32_t kVotes = kWarp;
constexpr uint32_t kLoads = 8;  // in flight
constexpr uint32_t kSignWarps = kSignThreads / kWarp;
constexpr uint32_t kWarpElements = kVotes * kWarp;
static_assert(kSignTile == kSignWarps * kWarpElements);

constexpr uint64_t kTilesOfTwoLaunches = 4 * kSignThreads;  // four counts per thread
constexpr uint64_t kNamingBlocks = 1024;  // a few for each multiprocessor of the largest GPU

// The first element of this warp in a tile.
__device__ uint64_t first_of_warp(uint64_t tile) {
  return tile * kSignTile + warp_of_block() * kWarpElements;
}

// Writes the half words that the lanes of a warp have kept. The bytes of a plane are in the order
// of the elements, so half words may be written separately. The upper half of the last word is
// written even if its elements do not exist; it is zero then.
__device__ void write_half_word(uint64_t* plane, uint64_t tile, uint64_t numel, uint32_t bits) {
  const uint64_t half = first_of_warp(tile) / kWarp + lane();
  if (half < 2 * sign_words(numel)) reinterpret_cast<uint32_t*>(plane)[half] = bits;
}

template <uint32_t kForm>
__device__ FoldInput load_value(const float* values, const Fold& fold, uint64_t i) {
  if constexpr (kForm == PENSTOCK_FORM_NONE)
    return {values[i], 0, 0};
  else
    return load_fold<kForm>(fold, i);
}
template <uint32_t kForm>
__device__ float use_value(const Fold& fold, uint64_t i, FoldInput& in) {
  if constexpr (kForm == PENSTOCK_FORM_NONE) {
    return in.work;
  } else {
    const float work = apply_fold<kForm>(fold, in);
    store_fold<kForm>(fold, i, work, in);
    return work;
  }
}

// The results of a lane after the votes of its warp on a tile: a half word, and the number of zeros
// among its elements.
struct Voted {
  uint32_t negative = 0;
  uint32_t zeros = 0;
};

// For a whole tile there are no checks for the end, because nvcc has few loads in flight with
// conditions.
template <uint32_t kForm, bool kWhole>
__device__ Voted vote_on(const float* values, uint64_t numel, const Fold& fold, uint64_t first) {
  Voted voted;
  for (uint32_t vote = 0; vote < kVotes; vote += kLoads) {
    FoldInput in[kLoads];
#pragma unroll
    for (uint32_t j = 0; j < kLoads; ++j) {
      const uint64_t i = first + (vote + j) * kWarp;
      in[j] = kWhole || i < numel ? load_value<kForm>(values, fold, i) : FoldInput{};
    }
#pragma unroll
    for (uint32_t j = 0; j < kLoads; ++j) {
      const uint64_t i = first + (vote + j) * kWarp;
      float x = 1.0f;  // neither negative nor zero
      if (kWhole || i < numel) x = use_value<kForm>(fold, i, in[j]);
      const uint32_t bits = __ballot_sync(kAllLanes, x < 0.0f);
      if (lane() == vote + j) voted.negative = bits;
      voted.zeros += x == 0.0f ? 1 : 0;
    }
  }
  return voted;
}

// Compensates and packs a tile, and returns its number of zeros. All threads of a block must call
// it.
template <uint32_t kForm>
__device__ uint32_t pack_block(const float* values, uint64_t tile, uint64_t numel, const Fold& fold,
                               uint64_t* negative) {
  __shared__ uint32_t zeros_of[kSignWarps];
  const uint64_t first = first_of_warp(tile) + lane();
  const Voted voted = (tile + 1) * kSignTile <= numel
                          ? vote_on<kForm, true>(values, numel, fold, first)
                          : vote_on<kForm, false>(values, numel, fold, first);
  write_half_word(negative, tile, numel, voted.negative);
  const uint32_t of_warp = warp_sum(voted.zeros);
  if (lane() == 0) zeros_of[warp_of_block()] = of_warp;
  __syncthreads();
  uint32_t sum = 0;
  for (uint32_t w = 0; w < kSignWarps; ++w) sum += zeros_of[w];
  return sum;
}

// One block per tile. zeros_in[tile] receives the number of zeros of the tile.
template <uint32_t kForm>
__global__ void __launch_bounds__(kSignThreads)
    pack_negative(const float* values, uint64_t numel, Fold fold, uint64_t* negative,
                  uint64_t* zeros_in) {
  const uint32_t zeros = pack_block<kForm>(values, blockIdx.x, numel, fold, negative);
  if (threadIdx.x == 0) zeros_in[blockIdx.x] = zeros;
}

// Lists the zeros of a tile; `begin` zeros lie before the tile.
__device__ void list_zeros(const float* values, uint64_t tile, uint64_t numel, uint64_t begin,
                           uint32_t* zeros) {
  __shared__ uint32_t zeros_of[kSignWarps];
  const uint64_t first = first_of_warp(tile) + lane();
  uint32_t count = 0;
  for (uint32_t vote = 0; vote < kVotes; ++vote) {
    const uint64_t i = first + vote * kWarp;
    count += i < numel && values[i] == 0.0f ? 1 : 0;
  }
  count = warp_sum(count);
  __syncthreads();  // all threads have read the previous tile's
  if (lane() == 0) zeros_of[warp_of_block()] = count;
  __syncthreads();
  uint64_t to = begin;
  for (uint32_t w = 0; w < warp_of_block(); ++w) to += zeros_of[w];
  for (uint32_t vote = 0; vote < kVotes; ++vote) {
    const uint64_t i = first + vote * kWarp;
    const bool is_zero = i < numel && values[i] == 0.0f;
    const uint32_t found = __ballot_sync(kAllLanes, is_zero);
    if (is_zero) zeros[to + __popc(found & lanes_before())] = static_cast<uint32_t>(i);
    to += __popc(found);
  }
}

__device__ void pack_nonzero(const float* values, uint64_t tile, uint64_t numel,
                             uint64_t* nonzero) {
  const uint64_t first = first_of_warp(tile) + lane();
  uint32_t mine = 0;
  for (uint32_t vote = 0; vote < kVotes; ++vote) {
    const uint64_t i = first + vote * kWarp;
    const uint32_t bits = __ballot_sync(kAllLanes, i < numel && !(values[i] == 0.0f));
    if (lane() == vote) mine = bits;
  }
  write_half_word(nonzero, tile, numel, mine);
}

// One block.
__global__ void __launch_bounds__(kScanThreads)
    scan_tiles(uint64_t* counts, uint64_t n, uint64_t* total) {
  scan_counts(counts, n, total);
}

__device__ void write_counts(uint64_t n_zeros, uint64_t numel, const SignRoom& room) {
  const bool listed = n_zeros <= room.capacity;
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  *room.n_zeros = listed ? n_zeros : 0;
  *room.n_nonzero = listed ? 0 : sign_words(numel);
}

// Writes the zeros of a tile in the list or the plane. `begin` of all `n_zeros` zeros lie before
// the tile. All threads of a block must call it.
__device__ void name_tile(const float* values, uint64_t tile, uint64_t numel, uint64_t begin,
                          bool listed, const SignRoom& room) {
  if (listed)
    list_zeros(values, tile, numel, begin, room.zeros);
  else
    pack_nonzero(values, tile, numel, room.nonzero);
}

// Does all work for an array of one tile, with one block. A thread reads only its own writes again.
template <uint32_t kForm>
__global__ void __launch_bounds__(kSignThreads)
    pack_and_name(const float* values, uint64_t numel, Fold fold, SignRoom room) {
  const uint32_t zeros = pack_block<kForm>(values, 0, numel, fold, room.negative);
  write_counts(zeros, numel, room);
  if (zeros > 0) name_tile(values, 0, numel, 0, zeros <= room.capacity, room);
}

// After scan_tiles: tile t lists its zeros from offsets[t] to offsets[t + 1]. While zeros are
// listed, tiles without zeros, which are most tiles, are not read again: each thread checks whether
// a tile of its block has zeros, and the block handles only the tiles that have zeros.
__global__ void __launch_bounds__(kSignThreads)
    name_zeros(const float* values, uint64_t numel, const uint64_t* offsets, uint64_t n_tiles,
               SignRoom room) {
  __shared__ uint32_t wanted[kSignWarps];
  const uint64_t n_zeros = offsets[n_tiles];
  const bool listed = n_zeros <= room.capacity;
  write_counts(n_zeros, numel, room);
  for (uint64_t first = blockIdx.x; first < n_tiles; first += uint64_t{gridDim.x} * kSignThreads) {
    const uint64_t mine = first + uint64_t{gridDim.x} * threadIdx.x;
    const bool has = mine < n_tiles && (!listed || offsets[mine] < offsets[mine + 1]);
    const uint32_t of_warp = __ballot_sync(kAllLanes, has);
    __syncthreads();  // all threads have read the previous turn's
    if (lane() == 0) wanted[warp_of_block()] = of_warp;
    __syncthreads();
    for (uint32_t w = 0; w < kSignWarps; ++w)
      for (uint32_t left = wanted[w]; left != 0; left &= left - 1) {
        const uint32_t thread =
            w * kWarp + static_cast<uint32_t>(__ffs(static_cast<int>(left))) - 1;
        const uint64_t tile = first + uint64_t{gridDim.x} * thread;
        name_tile(values, tile, numel, offsets[tile], listed, room);
      }
  }
}

// name_zeros for at most kTilesOfTwoLaunches tiles, with one block per tile. It reads the counts of
// all tiles as pack_negative wrote them.
__global__ void __launch_bounds__(kSignThreads)
    name_zeros_of_few(const float* values, uint64_t numel, const uint64_t* zeros_in,
                      uint32_t n_tiles, SignRoom room) {
  __shared__ uint64_t sums[kSignWarps], offset;
  constexpr uint32_t kMine = kTilesOfTwoLaunches / kSignThreads;
  uint64_t count[kMine], sum = 0;
#pragma unroll
  for (uint32_t j = 0; j < kMine; ++j) {
    const uint32_t tile = threadIdx.x * kMine + j;
    count[j] = tile < n_tiles ? zeros_in[tile] : 0;
    sum += count[j];
  }
  uint64_t n_zeros;
  uint64_t before = block_exclusive_sum<kSignThreads>(sum, sums, n_zeros);
#pragma unroll
  for (uint32_t j = 0; j < kMine; ++j) {
    if (threadIdx.x * kMine + j == blockIdx.x) offset = before;
    before += count[j];
  }
  __syncthreads();
  const bool listed = n_zeros <= room.capacity;
  write_counts(n_zeros, numel, room);
  if (!listed || zeros_in[blockIdx.x] > 0)  // all threads
    name_tile(values, blockIdx.x, numel, offset, listed, room);
}

bool legal(const float* values, uint64_t numel, const SignRoom& room, const Workspace& workspace,
           const Fold* fold) {
  if (room.n_zeros == nullptr || room.n_nonzero == nullptr) return false;
  if (room.capacity > 0 && (room.zeros == nullptr || numel > uint64_t{1} << 32)) return false;
  if (numel == 0) return true;
  if (fold != nullptr && (!can_fold(*fold) || fold->work != values)) return false;
  return values != nullptr && room.negative != nullptr &&
         (room.nonzero != nullptr || numel <= room.capacity) && workspace.data != nullptr &&
         aligned(workspace.data, 64) && workspace.bytes >= pack_signs_workspace_bytes(numel);
}

}  // namespace

uint64_t pack_signs_workspace_bytes(uint64_t numel) noexcept {
  return (pieces(numel, kSignTile) + 1) * sizeof(uint64_t);
}

int32_t pack_signs(const float* values, uint64_t numel, const SignRoom& room, Workspace workspace,
                   void* stream, const Fold* fold) noexcept {
  if (!legal(values, numel, room, workspace, fold)) return cudaErrorInvalidValue;
  Queue queue(stream);
  if (numel == 0) {
    queue.zero(room.n_zeros, sizeof(uint64_t));
    queue.zero(room.n_nonzero, sizeof(uint64_t));
    return queue.error();
  }
  auto* const offsets = static_cast<uint64_t*>(workspace.data);
  const uint64_t n_tiles = pieces(numel, kSignTile);
  const Fold first = fold == nullptr ? Fold{} : *fold;
  with_form(first.form, [&]<uint32_t kForm>() {
    if (n_tiles == 1)
      queue.run<pack_and_name<kForm>>(1, kSignThreads, values, numel, first, room);
    else
      queue.run<pack_negative<kForm>>(n_tiles, kSignThreads, values, numel, first, room.negative,
                                      offsets);
  });
  if (n_tiles == 1) return queue.error();
  if (n_tiles <= kTilesOfTwoLaunches) {
    queue.run<name_zeros_of_few>(n_tiles, kSignThreads, values, numel, offsets,
                                 static_cast<uint32_t>(n_tiles), room);
    return queue.error();
  }
  queue.run<scan_tiles>(1, kScanThreads, offsets, n_tiles, offsets + n_tiles);
  queue.run<name_zeros>(n_tiles < kNamingBlocks ? n_tiles : kNamingBlocks, kSignThreads, values,
                        numel, offsets, n_tiles, room);
  return queue.error();
}

}  // namespace penstock::kernels::cuda

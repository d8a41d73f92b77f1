// Packing of signs into planes of bits; see sign.hpp. A warp reads 32 elements and votes on them:
// the result is a half word of the plane. Lane l keeps the l-th of 32 votes, so that the warp then
// writes 32 neighbouring half words. The kernels, in the order in which they run:
//
//   pack_negative   the one pass over all elements, which also compensates: the plane of negative
//                   elements, and how many zeros each tile has
//   scan_tiles      where each tile lists its zeros, and how many there are of all
//   name_zeros      the list, or the plane of the others, and the counts of both
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

// The first element of this warp.
__device__ uint64_t first_of_warp() {
  return uint64_t{blockIdx.x} * kSignTile + warp_of_block() * kWarpElements;
}

// Writes what the lanes of a warp have kept of a plane. Bytes of a plane are in the order of the
// elements: half words may be written as such. The upper half of the last word is written too: its
// elements do not exist, so it is zero.
__device__ void write_half_word(uint64_t* plane, uint64_t numel, uint32_t bits) {
  const uint64_t half = first_of_warp() / kWarp + lane();
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

// One block per tile. zeros_in[tile] is how many zeros the tile has.
template <uint32_t kForm>
__global__ void __launch_bounds__(kSignThreads)
    pack_negative(const float* values, uint64_t numel, Fold fold, uint64_t* negative,
                  uint64_t* zeros_in) {
  __shared__ uint32_t zeros_of[kSignWarps];
  const uint64_t first = first_of_warp() + lane();
  uint32_t mine = 0, zeros = 0;
  for (uint32_t vote = 0; vote < kVotes; vote += kLoads) {
    FoldInput in[kLoads];
#pragma unroll
    for (uint32_t j = 0; j < kLoads; ++j) {
      const uint64_t i = first + (vote + j) * kWarp;
      if (i < numel) in[j] = load_value<kForm>(values, fold, i);
    }
#pragma unroll
    for (uint32_t j = 0; j < kLoads; ++j) {
      const uint64_t i = first + (vote + j) * kWarp;
      float x = 1.0f;  // neither negative nor zero
      if (i < numel) x = use_value<kForm>(fold, i, in[j]);
      const uint32_t bits = __ballot_sync(kAllLanes, x < 0.0f);
      if (lane() == vote + j) mine = bits;
      zeros += x == 0.0f ? 1 : 0;
    }
  }
  write_half_word(negative, numel, mine);
  zeros = warp_sum(zeros);
  if (lane() == 0) zeros_of[warp_of_block()] = zeros;
  __syncthreads();
  if (threadIdx.x != 0) return;
  uint64_t sum = 0;
  for (uint32_t w = 0; w < kSignWarps; ++w) sum += zeros_of[w];
  zeros_in[blockIdx.x] = sum;
}

// A tile whose first zero is the `begin`-th of all.
__device__ void list_zeros(const float* values, uint64_t numel, uint64_t begin, uint32_t* zeros) {
  __shared__ uint32_t zeros_of[kSignWarps];
  const uint64_t first = first_of_warp() + lane();
  uint32_t count = 0;
  for (uint32_t vote = 0; vote < kVotes; ++vote) {
    const uint64_t i = first + vote * kWarp;
    count += i < numel && values[i] == 0.0f ? 1 : 0;
  }
  count = warp_sum(count);
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

__device__ void pack_nonzero(const float* values, uint64_t numel, uint64_t* nonzero) {
  const uint64_t first = first_of_warp() + lane();
  uint32_t mine = 0;
  for (uint32_t vote = 0; vote < kVotes; ++vote) {
    const uint64_t i = first + vote * kWarp;
    const uint32_t bits = __ballot_sync(kAllLanes, i < numel && !(values[i] == 0.0f));
    if (lane() == vote) mine = bits;
  }
  write_half_word(nonzero, numel, mine);
}

// One block.
__global__ void __launch_bounds__(kScanThreads)
    scan_tiles(uint64_t* counts, uint64_t n, uint64_t* total) {
  scan_counts(counts, n, total);
}

// One block per tile, after scan_tiles: tile t lists its zeros from offsets[t] to offsets[t + 1].
// Tiles without zeros, most of them, are not read again while zeros are listed.
__global__ void __launch_bounds__(kSignThreads)
    name_zeros(const float* values, uint64_t numel, const uint64_t* offsets, uint64_t n_tiles,
               SignRoom room) {
  const uint64_t n_zeros = offsets[n_tiles];
  const bool listed = n_zeros <= room.capacity;
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    *room.n_zeros = listed ? n_zeros : 0;
    *room.n_nonzero = listed ? 0 : sign_words(numel);
  }
  const uint64_t begin = offsets[blockIdx.x];
  if (!listed)  // all threads, as below
    pack_nonzero(values, numel, room.nonzero);
  else if (begin < offsets[blockIdx.x + 1])
    list_zeros(values, numel, begin, room.zeros);
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
    queue.run<pack_negative<kForm>>(n_tiles, kSignThreads, values, numel, first, room.negative,
                                    offsets);
  });
  queue.run<scan_tiles>(1, kScanThreads, offsets, n_tiles, offsets + n_tiles);
  queue.run<name_zeros>(n_tiles, kSignThreads, values, numel, offsets, n_tiles, room);
  return queue.error();
}

}  // namespace penstock::kernels::cuda

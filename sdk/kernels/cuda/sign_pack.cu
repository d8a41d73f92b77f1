// Packing of signs into planes of bits; see sign.hpp. A warp reads 32 elements and votes on them:
// the result is a half word of the plane. Lane l keeps the l-th of 32 votes, so that the warp then
// writes 32 neighbouring half words.
#include <kernels/cuda/elements.cuh>
#include <kernels/cuda/scan.cuh>
#include <kernels/cuda/sign.hpp>

namespace penstock::kernels::cuda {
namespace {

constexpr uint32_t kVotes = kWarp;
constexpr uint32_t kLoads = 8;  // in flight
constexpr uint32_t kSignWarps = kSignThreads / kWarp;
constexpr uint32_t kWarpElements = kVotes * kWarp;
static_assert(kSignTile == kSignWarps * kWarpElements);

enum class Plane { kNegative, kNonzero };

// Bytes of a plane are in the order of the elements: half words may be written as such.
__device__ uint32_t* half_words(uint64_t* plane) {
  return reinterpret_cast<uint32_t*>(plane);
}

// One block per tile. zeros_in[tile], unless null, is how many zeros the tile has.
template <Plane kPlane>
__global__ void __launch_bounds__(kSignThreads)
    pack_plane(const float* values, uint64_t numel, uint64_t* plane, uint64_t* zeros_in) {
  __shared__ uint32_t zeros_of[kSignWarps];
  const uint64_t first =
      uint64_t{blockIdx.x} * kSignTile + warp_of_block() * kWarpElements;  // of this warp
  uint32_t mine = 0, zeros = 0;
  for (uint32_t vote = 0; vote < kVotes; vote += kLoads) {
    float x[kLoads];
#pragma unroll
    for (uint32_t j = 0; j < kLoads; ++j) {
      const uint64_t i = first + (vote + j) * kWarp + lane();
      x[j] = i < numel ? values[i] : 1.0f;  // neither negative nor zero
    }
#pragma unroll
    for (uint32_t j = 0; j < kLoads; ++j) {
      const bool exists = first + (vote + j) * kWarp + lane() < numel;
      const bool is_set = kPlane == Plane::kNegative ? x[j] < 0.0f : exists && !(x[j] == 0.0f);
      const uint32_t bits = __ballot_sync(kAllLanes, is_set);
      if (lane() == vote + j) mine = bits;
      zeros += x[j] == 0.0f ? 1 : 0;
    }
  }
  // The upper half of the last word is written too: its elements do not exist, so it is zero.
  const uint64_t half = first / kWarp + lane();
  if (half < 2 * sign_words(numel)) half_words(plane)[half] = mine;
  if (zeros_in == nullptr) return;  // all threads
  zeros = warp_sum(zeros);
  if (lane() == 0) zeros_of[warp_of_block()] = zeros;
  __syncthreads();
  if (threadIdx.x != 0) return;
  uint64_t sum = 0;
  for (uint32_t w = 0; w < kSignWarps; ++w) sum += zeros_of[w];
  zeros_in[blockIdx.x] = sum;
}

// One block per tile, after scan_tiles over offsets[n_tiles]. Tiles without zeros, most of them,
// are not read again.
__global__ void __launch_bounds__(kSignThreads)
    list_zeros(const float* values, uint64_t numel, const uint64_t* offsets, uint64_t n_tiles,
               const uint64_t* n_zeros, uint64_t capacity, uint32_t* zeros) {
  __shared__ uint32_t zeros_of[kSignWarps];
  const uint64_t tile = blockIdx.x;
  const uint64_t begin = offsets[tile];
  const uint64_t end = tile + 1 < n_tiles ? offsets[tile + 1] : *n_zeros;
  if (begin == end || begin >= capacity) return;  // all threads
  const uint64_t first = tile * kSignTile + warp_of_block() * kWarpElements;
  uint32_t count = 0;
  for (uint32_t vote = 0; vote < kVotes; ++vote) {
    const uint64_t i = first + vote * kWarp + lane();
    count += i < numel && values[i] == 0.0f ? 1 : 0;
  }
  count = warp_sum(count);
  if (lane() == 0) zeros_of[warp_of_block()] = count;
  __syncthreads();
  uint64_t to = begin;
  for (uint32_t w = 0; w < warp_of_block(); ++w) to += zeros_of[w];
  for (uint32_t vote = 0; vote < kVotes; ++vote) {
    const uint64_t i = first + vote * kWarp + lane();
    const bool is_zero = i < numel && values[i] == 0.0f;
    const uint32_t found = __ballot_sync(kAllLanes, is_zero);
    const uint64_t at = to + __popc(found & lanes_before());
    if (is_zero && at < capacity) zeros[at] = static_cast<uint32_t>(i);
    to += __popc(found);
  }
}

struct TakeOutBySign {
  using In = float;
  using Facts = float2;
  float* values;
  const float* steps;
  __device__ float2 facts(uint64_t) const { return {steps[0], steps[1]}; }
  __device__ float load(uint64_t i) const { return values[i]; }
  __device__ void store(uint64_t i, float x, const float2& step) const {
    values[i] = x - (x > 0.0f ? step.x : x < 0.0f ? step.y : 0.0f);
  }
};

}  // namespace

uint64_t pack_signs_workspace_bytes(uint64_t numel) noexcept {
  return (pieces(numel, kSignTile) + 1) * sizeof(uint64_t);
}

int32_t pack_signs(const float* values, uint64_t numel, uint64_t* negative, uint32_t* zeros,
                   uint64_t capacity, uint64_t* n_zeros, Workspace workspace,
                   void* stream) noexcept {
  if (n_zeros == nullptr || (capacity > 0 && (zeros == nullptr || numel > uint64_t{1} << 32)))
    return cudaErrorInvalidValue;
  Queue queue(stream);
  if (numel == 0) {
    queue.zero(n_zeros, sizeof(uint64_t));
    return queue.error();
  }
  if (values == nullptr || negative == nullptr || workspace.data == nullptr ||
      !aligned(workspace.data, 64) || workspace.bytes < pack_signs_workspace_bytes(numel))
    return cudaErrorInvalidValue;
  auto* const offsets = static_cast<uint64_t*>(workspace.data);
  const uint64_t n_tiles = pieces(numel, kSignTile);
  queue.run(pack_plane<Plane::kNegative>, n_tiles, kSignThreads, values, numel, negative, offsets);
  queue.run(scan_tiles, 1, kScanThreads, offsets, n_tiles, n_zeros);
  if (capacity > 0)
    queue.run(list_zeros, n_tiles, kSignThreads, values, numel, offsets, n_tiles, n_zeros, capacity,
              zeros);
  return queue.error();
}

int32_t pack_nonzero(const float* values, uint64_t numel, uint64_t* nonzero,
                     void* stream) noexcept {
  if (numel > 0 && (values == nullptr || nonzero == nullptr)) return cudaErrorInvalidValue;
  Queue queue(stream);
  queue.run(pack_plane<Plane::kNonzero>, pieces(numel, kSignTile), kSignThreads, values, numel,
            nonzero, nullptr);
  return queue.error();
}

int32_t take_out_by_sign(float* values, uint64_t numel, const float* steps, void* stream) noexcept {
  if (steps == nullptr || (numel > 0 && values == nullptr)) return cudaErrorInvalidValue;
  Queue queue(stream);
  each_element(queue, TakeOutBySign{values, steps}, numel);
  return queue.error();
}

}  // namespace penstock::kernels::cuda

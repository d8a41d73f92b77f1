// See rows.hpp. The k-th largest key of a row is found digit by digit, and the entries that reach
// it are written in order: each warp counts a part of the row, and a sum over warps gives the place
// where it writes.
#include <kernels/cuda/elements.cuh>
#include <kernels/cuda/rows.hpp>
#include <kernels/cuda/select.hpp>
#include <kernels/element/keys.hpp>

#include <algorithm>

namespace penstock::kernels::cuda {
namespace {

// The 31 bits of a key are four digits. The histograms are small because they are cleared once per
// digit and row.
constexpr uint32_t kRowBins = 256;
constexpr uint32_t kTurnThreads = 256;  // of a tile of 32 x 32

struct Job {
  const float* x;  // row after row
  uint32_t rows;
  uint32_t width;
  uint32_t lanes;  // number of rows whose entries alternate in the order of positions
  uint32_t k;
  uint32_t* indices;
  float* values;
};

// The keys of one row: in shared memory if the row fits, else read again each time.
template <uint32_t kCached>
struct RowKeys {
  const uint32_t* cached;
  const float* row;
  __device__ uint32_t operator[](uint64_t i) const {
    if constexpr (kCached > 0)
      return cached[i];
    else
      return magnitude_key(row[i]);
  }
};

// The keys to choose: all keys above `threshold`, and the first `ties` keys equal to it.
struct Going {
  uint32_t threshold;
  uint32_t ties;
};

template <uint32_t kThreads, typename Keys>
__device__ Going find_kth(const Keys& keys, uint32_t width, uint32_t k, uint32_t* histogram,
                          uint32_t* sums, Bin* found) {
  uint32_t prefix = 0, left = k;
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (uint32_t b = threadIdx.x; b < kRowBins; b += kThreads) histogram[b] = 0;
    __syncthreads();
    for (uint64_t i = threadIdx.x; i < width; i += kThreads) {
      const uint32_t digits = keys[i] >> shift;
      if (digits >> 8 == prefix) atomicAdd(&histogram[digits & 255u], 1u);
    }
    __syncthreads();
    const Bin bin = find_bin<kThreads, kRowBins>(histogram, left, sums, found);
    prefix = prefix << 8 | bin.index;
    left = bin.left;
    // All keys with this prefix are chosen, so the least of these keys is not needed.
    if (shift > 0 && prefix > 0 && left == bin.count) return {(prefix << shift) - 1, 0};
  }
  return {prefix, left};
}

// A block handles one row after the other. kCached is the width of the widest row that fits shared
// memory, or 0.
template <uint32_t kThreads, uint32_t kCached>
__global__ void __launch_bounds__(kThreads) select_in_rows(Job job) {
  constexpr uint32_t kWarps = kThreads / kWarp;
  __shared__ uint32_t cache[kCached > 0 ? kCached : 1];
  __shared__ uint32_t histogram[kRowBins];
  __shared__ uint32_t sums[kWarps];
  __shared__ Bin found;
  __shared__ uint32_t above_in[kWarps], equal_in[kWarps];
  for (uint64_t r = blockIdx.x; r < job.rows; r += gridDim.x) {
    const uint64_t first = r / job.lanes * job.width * job.lanes + r % job.lanes;
    const float* const row = job.x + r * job.width;
    if constexpr (kCached > 0) {
      for (uint32_t i = threadIdx.x; i < job.width; i += kThreads) cache[i] = magnitude_key(row[i]);
      __syncthreads();
    }
    const RowKeys<kCached> keys{cache, row};
    const Going kth = find_kth<kThreads>(keys, job.width, job.k, histogram, sums, &found);

    // Each warp's part is a multiple of a warp, so that 32 neighbours are handled together.
    const uint32_t chunks = job.width / kWarp + (job.width % kWarp != 0 ? 1 : 0);
    const uint32_t per_warp = (chunks + kWarps - 1) / kWarps;
    const uint32_t begin = warp_of_block() * per_warp;
    const uint32_t end = begin + per_warp < chunks ? begin + per_warp : chunks;
    uint32_t above = 0, equal = 0;
    for (uint32_t c = begin; c < end; ++c) {
      const uint32_t i = c * kWarp + lane();
      const uint32_t key = i < job.width ? keys[i] : 0;
      above += i < job.width && key > kth.threshold ? 1 : 0;
      equal += i < job.width && key == kth.threshold ? 1 : 0;
    }
    above = warp_sum(above);
    equal = warp_sum(equal);
    if (lane() == 0) {
      above_in[warp_of_block()] = above;
      equal_in[warp_of_block()] = equal;
    }
    __syncthreads();
    uint32_t to = 0, ties = 0;  // above and equal before this warp's part
    for (uint32_t w = 0; w < warp_of_block(); ++w) {
      to += above_in[w];
      ties += equal_in[w];
    }
    to += ties < kth.ties ? ties : kth.ties;
    for (uint32_t c = begin; c < end; ++c) {
      const uint32_t i = c * kWarp + lane();
      const bool exists = i < job.width;
      const uint32_t key = exists ? keys[i] : 0;
      const bool is_equal = exists && key == kth.threshold;
      const uint32_t equals = __ballot_sync(kAllLanes, is_equal);
      const bool take = (exists && key > kth.threshold) ||
                        (is_equal && ties + __popc(equals & lanes_before()) < kth.ties);
      const uint32_t taken = __ballot_sync(kAllLanes, take);
      if (take) {
        const uint64_t at = r * job.k + to + __popc(taken & lanes_before());
        job.indices[at] = static_cast<uint32_t>(first + uint64_t{i} * job.lanes);
        if (job.values != nullptr) job.values[at] = row[i];
      }
      ties += __popc(equals);
      to += __popc(taken);
    }
    __syncthreads();  // the next row's keys overwrite this one's
  }
}

constexpr uint64_t kMostRowBlocks = 64 * 1024;

void queue_rows(Queue& queue, const Job& job) {
  const uint64_t blocks = job.rows < kMostRowBlocks ? job.rows : kMostRowBlocks;
  if (job.width <= kNarrowRow)
    queue.run<select_in_rows<64, kNarrowRow>>(blocks, 64, job);
  else if (job.width <= kCachedRow)
    queue.run<select_in_rows<256, kCachedRow>>(blocks, 256, job);
  else
    queue.run<select_in_rows<256, 0>>(blocks, 256, job);
}

// Transposes lanes to rows: `rows` has one lane after the other of each matrix. A tile goes through
// shared memory, so that whole sectors are read and written; reading a single lane would use one
// float of each sector.
__global__ void __launch_bounds__(kTurnThreads)
    turn_lanes(const float* x, Lanes shape, uint64_t tiles, float* rows) {
  __shared__ float tile[kWarp][kWarp + 1];
  const uint64_t across = pieces(shape.lanes, kWarp);
  const uint64_t of_matrix = across * pieces(shape.length, kWarp);
  for (uint64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const uint64_t matrix = t / of_matrix;
    const uint64_t first = t % of_matrix / across * kWarp, first_lane = t % across * kWarp;
    for (uint32_t w = warp_of_block(); w < kWarp; w += kTurnThreads / kWarp) {
      const uint64_t i = first + w, l = first_lane + lane();
      if (i < shape.length && l < shape.lanes)
        tile[w][lane()] = x[(matrix * shape.length + i) * shape.lanes + l];
    }
    __syncthreads();
    for (uint32_t w = warp_of_block(); w < kWarp; w += kTurnThreads / kWarp) {
      const uint64_t i = first + lane(), l = first_lane + w;
      if (i < shape.length && l < shape.lanes)
        rows[(matrix * shape.lanes + l) * shape.length + i] = tile[lane()][w];
    }
    __syncthreads();  // the next tile overwrites this one
  }
}

struct Mark {
  using In = uint32_t;
  using Facts = NoFacts;
  const uint32_t* indices;
  float* marks;
  __device__ NoFacts facts(uint64_t) const { return {}; }
  __device__ uint32_t load(uint64_t j) const { return indices[j]; }
  __device__ void store(uint64_t, uint32_t index, NoFacts) const { marks[index] = 1; }
};

uint64_t mark_bytes(const Lanes& shape) {
  return pieces(shape.blocks * shape.length * shape.lanes * sizeof(float), 64) * 64;
}

}  // namespace

int32_t select_rows(const float* x, uint64_t rows, uint64_t width, uint64_t k, uint32_t* indices,
                    float* values, void* stream) noexcept {
  if (k > width || (width > 0 && rows > 0xffffffffu / width)) return cudaErrorInvalidValue;
  if (k == 0 || rows == 0) return cudaSuccess;
  if (x == nullptr || indices == nullptr) return cudaErrorInvalidValue;
  Queue queue(stream);
  queue_rows(queue, {x, static_cast<uint32_t>(rows), static_cast<uint32_t>(width), 1,
                     static_cast<uint32_t>(k), indices, values});
  return queue.error();
}

uint64_t select_lanes_workspace_bytes(const Lanes& shape, uint64_t k) noexcept {
  const uint64_t rows = shape.blocks * shape.lanes;
  return mark_bytes(shape) + select_workspace_bytes(rows * shape.length, rows * k);
}

// Finds the chosen entries lane by lane, marks them, and then writes the marked entries in order.
// The marks reuse the memory of the transposed lanes.
int32_t select_lanes(const float* x, const Lanes& shape, uint64_t k, uint32_t* indices,
                     Workspace workspace, void* stream) noexcept {
  const uint64_t rows = shape.blocks * shape.lanes, n = rows * shape.length;
  if (k > shape.length || n > 0xffffffffu) return cudaErrorInvalidValue;
  if (k == 0 || n == 0) return cudaSuccess;
  if (x == nullptr || indices == nullptr || workspace.data == nullptr ||
      !aligned(workspace.data, 64) || workspace.bytes < select_lanes_workspace_bytes(shape, k))
    return cudaErrorInvalidValue;
  auto* const marks = static_cast<float*>(workspace.data);
  Queue queue(stream);
  const float* const as_rows = shape.lanes == 1 ? x : marks;
  const uint64_t tiles = shape.blocks * pieces(shape.length, kWarp) * pieces(shape.lanes, kWarp);
  if (as_rows != x)
    queue.run<turn_lanes>(std::min(tiles, kMostRowBlocks), kTurnThreads, x, shape, tiles, marks);
  queue_rows(queue,
             {as_rows, static_cast<uint32_t>(rows), static_cast<uint32_t>(shape.length),
              static_cast<uint32_t>(shape.lanes), static_cast<uint32_t>(k), indices, nullptr});
  queue.zero(marks, n * sizeof(float));
  each_element(queue, Mark{indices, marks}, rows * k);
  if (queue.error() != 0) return queue.error();
  const uint64_t used = mark_bytes(shape);
  return select_largest(marks, n, rows * k, indices, nullptr,
                        {static_cast<char*>(workspace.data) + used, workspace.bytes - used},
                        stream);
}

}  // namespace penstock::kernels::cuda

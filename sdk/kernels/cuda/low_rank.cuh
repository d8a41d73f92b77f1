// The kernels of low-rank products. Internal to the CUDA kernels.
//
//   multiply_tiles        sums along rows of the matrix: lanes take columns
//   transposed_tiles      sums along columns of the matrix: warps take rows
//   JoinSegments          adds the segments of one sum
//   expand_tiles          computes each entry of p q^T from the factors
//
// The loads of matrix entries start before the factor is staged, so that they are in flight while
// the block waits for the factor.
#pragma once

#include <kernels/cuda/block.cuh>
#include <kernels/cuda/elements.cuh>
#include <kernels/cuda/fold.cuh>

namespace penstock::kernels::cuda::low_rank {

inline constexpr uint32_t kProductWarps = kProductThreads / kWarp;

// The number of matrix entries along the other dimension that a thread handles: their products with
// kWidth columns of the factor stay in registers.
template <uint32_t kWidth>
inline constexpr uint32_t kKept = kWidth <= 8 ? 4 : 2;

// The rows of a block in multiply_tiles, and the columns of a block in transposed_tiles.
template <uint32_t kWidth>
inline constexpr uint32_t kTileOfRows = kProductWarps* kKept<kWidth>;
template <uint32_t kWidth>
inline constexpr uint32_t kTileOfColumns = kWarp* kKept<kWidth>;

// A matrix, `width` columns of the factor that it is multiplied with, and the target of the
// results.
struct Product {
  const float* m;
  uint64_t rows;
  uint64_t cols;
  const float* factor;  // the first of these columns
  uint32_t rank;        // distance in floats between rows of the factor
  uint32_t width;
  uint32_t segments;
  uint64_t segment;  // terms of a segment
  float* out;        // the results of segment s begin at out + s * segment_results
  uint64_t segment_results;
  uint32_t out_stride;
};

// ---- Entries of the matrix ----

template <uint32_t kForm>
__device__ FoldInput load_entry(const float* m, const Fold& fold, uint64_t i) {
  if constexpr (kForm == PENSTOCK_FORM_NONE)
    return {m[i], 0, 0};
  else
    return load_fold<kForm>(fold, i);
}

template <uint32_t kForm>
__device__ float use_entry(const Fold& fold, uint64_t i, FoldInput& in) {
  if constexpr (kForm == PENSTOCK_FORM_NONE) {
    return in.work;
  } else {
    const float work = apply_fold<kForm>(fold, in);
    store_fold<kForm>(fold, i, work, in);
    return work;
  }
}

// ---- Factors in shared memory ----

// One float more than a power of two, so that neighbours in a row of the factor lie in different
// banks.
inline constexpr uint32_t kPitch = kProductColumns + 1;

// staged[c * kPitch + j] = factor[(first + j) * rank + c] for c < kWidth, zero beyond the end of
// the factor's rows and for c >= width.
template <uint32_t kWidth>
__device__ void stage_turned(const float* factor, uint32_t rank, uint32_t width, uint64_t first,
                             uint64_t end, float* staged) {
  for (uint32_t e = threadIdx.x; e < kProductColumns * kWidth; e += kProductThreads) {
    const uint32_t j = e / kWidth, c = e % kWidth;
    const bool exists = first + j < end && c < width;
    staged[c * kPitch + j] = exists ? factor[(first + j) * rank + c] : 0.0f;
  }
}

// staged[i * kWidth + c] = factor[(first + i) * rank + c], i < kProductRows, with zeros as in
// stage_turned.
template <uint32_t kWidth>
__device__ void stage_rows(const float* factor, uint32_t rank, uint32_t width, uint64_t first,
                           uint64_t end, float* staged) {
  for (uint32_t e = threadIdx.x; e < kProductRows * kWidth; e += kProductThreads) {
    const uint32_t i = e / kWidth, c = e % kWidth;
    const bool exists = first + i < end && c < width;
    staged[e] = exists ? factor[(first + i) * rank + c] : 0.0f;
  }
}

// ---- Sums ----

// The number of blocks for which a multiprocessor must have room. If there were no limit, the
// compiler would give forms with momentum up to 190 registers per thread, and a single block of
// eight warps could not hide the time of a load.
template <uint32_t kForm>
inline constexpr uint32_t kBlocksAtOnce = kForm == PENSTOCK_FORM_NONE ? 0 : 2;

// A warp takes kKept rows; its lane l takes the columns l, l + 32, ... of a segment.
template <uint32_t kWidth, uint32_t kForm>
__global__ void __launch_bounds__(kProductThreads, kBlocksAtOnce<kForm>)
    multiply_tiles(Product job, Fold fold) {
  constexpr uint32_t kRows = kKept<kWidth>, kLoads = kProductColumns / kWarp;
  __shared__ float staged[kWidth * kPitch];
  const uint64_t segment = blockIdx.x % job.segments;
  const uint64_t begin = segment * job.segment;
  const uint64_t end = begin + job.segment < job.cols ? begin + job.segment : job.cols;
  const uint64_t row =
      blockIdx.x / job.segments * kTileOfRows<kWidth> + uint64_t{warp_of_block()} * kRows;
  float sums[kRows][kWidth] = {};
  for (uint64_t stage = begin; stage < end; stage += kProductColumns) {
    const uint64_t first = stage + lane();
    FoldInput in[kRows][kLoads];
#pragma unroll
    for (uint32_t r = 0; r < kRows; ++r)
#pragma unroll
      for (uint32_t l = 0; l < kLoads; ++l) {
        const uint64_t j = first + l * kWarp;
        if (row + r < job.rows && j < end)
          in[r][l] = load_entry<kForm>(job.m, fold, (row + r) * job.cols + j);
      }
    __syncthreads();
    stage_turned<kWidth>(job.factor, job.rank, job.width, stage, end, staged);
    __syncthreads();
#pragma unroll
    for (uint32_t l = 0; l < kLoads; ++l) {
      const uint64_t j = first + l * kWarp;
      float entries[kRows];
#pragma unroll
      for (uint32_t r = 0; r < kRows; ++r) {
        entries[r] = 0;
        if (row + r < job.rows && j < end)
          entries[r] = use_entry<kForm>(fold, (row + r) * job.cols + j, in[r][l]);
      }
#pragma unroll
      for (uint32_t c = 0; c < kWidth; ++c) {
        const float factor = staged[c * kPitch + l * kWarp + lane()];
#pragma unroll
        for (uint32_t r = 0; r < kRows; ++r) sums[r][c] += entries[r] * factor;
      }
    }
  }
  float* const out = job.out + segment * job.segment_results;
#pragma unroll
  for (uint32_t r = 0; r < kRows; ++r) {
    float mine = 0;
#pragma unroll
    for (uint32_t c = 0; c < kWidth; ++c) {
      const float sum = warp_sum(sums[r][c]);
      if (lane() == c) mine = sum;
    }
    if (lane() < job.width && row + r < job.rows) out[(row + r) * job.out_stride + lane()] = mine;
  }
}

// A lane takes kKept columns, 32 apart; warp w of a block takes the rows w, w + 8, ... of a
// segment.
template <uint32_t kWidth, uint32_t kForm>
__global__ void __launch_bounds__(kProductThreads, kBlocksAtOnce<kForm>)
    transposed_tiles(Product job, Fold fold) {
  constexpr uint32_t kCols = kKept<kWidth>, kLoads = kProductRows / kProductWarps;
  constexpr uint32_t kTile = kTileOfColumns<kWidth>;
  __shared__ float staged[kProductRows * kWidth];
  __shared__ float joined[kProductWarps * kTile];
  const uint64_t segment = blockIdx.x % job.segments;
  const uint64_t begin = segment * job.segment;
  const uint64_t end = begin + job.segment < job.rows ? begin + job.segment : job.rows;
  const uint64_t tile = blockIdx.x / job.segments * kTile;
  float sums[kWidth][kCols] = {};
  for (uint64_t stage = begin; stage < end; stage += kProductRows) {
    const uint64_t first = stage + warp_of_block();
    FoldInput in[kLoads][kCols];
#pragma unroll
    for (uint32_t l = 0; l < kLoads; ++l)
#pragma unroll
      for (uint32_t d = 0; d < kCols; ++d) {
        const uint64_t i = first + l * kProductWarps, j = tile + d * kWarp + lane();
        if (i < end && j < job.cols) in[l][d] = load_entry<kForm>(job.m, fold, i * job.cols + j);
      }
    __syncthreads();
    stage_rows<kWidth>(job.factor, job.rank, job.width, stage, end, staged);
    __syncthreads();
#pragma unroll
    for (uint32_t l = 0; l < kLoads; ++l) {
      const uint64_t i = first + l * kProductWarps;
      float entries[kCols];
#pragma unroll
      for (uint32_t d = 0; d < kCols; ++d) {
        const uint64_t j = tile + d * kWarp + lane();
        entries[d] = 0;
        if (i < end && j < job.cols)
          entries[d] = use_entry<kForm>(fold, i * job.cols + j, in[l][d]);
      }
#pragma unroll
      for (uint32_t c = 0; c < kWidth; ++c) {
        const float factor = staged[(l * kProductWarps + warp_of_block()) * kWidth + c];
#pragma unroll
        for (uint32_t d = 0; d < kCols; ++d) sums[c][d] += entries[d] * factor;
      }
    }
  }
  float* const out = job.out + segment * job.segment_results;
#pragma unroll
  for (uint32_t c = 0; c < kWidth; ++c) {
    __syncthreads();  // the previous column has been read
#pragma unroll
    for (uint32_t d = 0; d < kCols; ++d)
      joined[warp_of_block() * kTile + d * kWarp + lane()] = sums[c][d];
    __syncthreads();
    const uint32_t t = threadIdx.x;
    if (t >= kTile || tile + t >= job.cols || c >= job.width) continue;
    float chains[kProductWarps];
#pragma unroll
    for (uint32_t w = 0; w < kProductWarps; ++w) chains[w] = joined[w * kTile + t];
#pragma unroll
    for (uint32_t half = kProductWarps / 2; half > 0; half /= 2)
#pragma unroll
      for (uint32_t w = 0; w < half; ++w) chains[w] += chains[w + half];
    out[(tile + t) * job.out_stride + c] = chains[0];
  }
}

// The body for each_element over the results: it adds segment after segment.
struct JoinSegments {
  using In = float;
  using Facts = NoFacts;
  const float* sums;  // the sums of segment s begin at s * results
  uint64_t results;
  uint32_t segments;
  uint32_t width;
  float* out;
  uint32_t out_stride;
  __device__ NoFacts facts(uint64_t) const { return {}; }
  __device__ float load(uint64_t i) const {
    float sum = sums[i];
    for (uint32_t s = 1; s < segments; ++s) sum += sums[s * results + i];
    return sum;
  }
  __device__ void store(uint64_t i, float sum, NoFacts) const {
    out[i / width * out_stride + i % width] = sum;
  }
};

// ---- Entry by entry ----

inline constexpr uint32_t kExpandKept = 4;  // rows of a warp
static_assert(kProductRows == kProductWarps * kExpandKept);

// target = scale * p q^T or target -= p q^T, with one block per tile of kProductRows rows and
// kProductColumns columns. Terms are added in the CPU's order, column after column of the factors.
template <bool kTakeOut>
__global__ void __launch_bounds__(kProductThreads)
    expand_tiles(float* target, uint64_t rows, uint64_t cols, uint32_t rank, const float* p,
                 const float* q, float scale) {
  constexpr uint32_t kLoads = kProductColumns / kWarp;
  __shared__ float left[kProductRows * kProductWidth];
  __shared__ float right[kProductWidth * kPitch];
  const uint64_t column_tiles = pieces(cols, kProductColumns);
  const uint64_t tile_row = blockIdx.x / column_tiles * kProductRows;
  const uint64_t tile_column = blockIdx.x % column_tiles * kProductColumns;
  const uint64_t row = tile_row + uint64_t{warp_of_block()} * kExpandKept;
  const auto exists = [&](uint32_t r, uint32_t l) {
    return row + r < rows && tile_column + l * kWarp + lane() < cols;
  };
  const auto at = [&](uint32_t r, uint32_t l) {
    return (row + r) * cols + tile_column + l * kWarp + lane();
  };
  float before[kExpandKept][kLoads];
  float sums[kExpandKept][kLoads];
#pragma unroll
  for (uint32_t r = 0; r < kExpandKept; ++r)
#pragma unroll
    for (uint32_t l = 0; l < kLoads; ++l) {
      before[r][l] = kTakeOut && exists(r, l) ? target[at(r, l)] : 0.0f;
      sums[r][l] = -0.0f;  // adding it changes no first term, not even a zero's sign
    }
  for (uint32_t first = 0; first < rank; first += kProductWidth) {
    const uint32_t width = rank - first < kProductWidth ? rank - first : kProductWidth;
    __syncthreads();
    stage_rows<kProductWidth>(p + first, rank, width, tile_row, rows, left);
    stage_turned<kProductWidth>(q + first, rank, width, tile_column, cols, right);
    __syncthreads();
    for (uint32_t c = 0; c < width; ++c) {
      float factors[kLoads];
#pragma unroll
      for (uint32_t l = 0; l < kLoads; ++l) factors[l] = right[c * kPitch + l * kWarp + lane()];
#pragma unroll
      for (uint32_t r = 0; r < kExpandKept; ++r) {
        const float factor = left[(warp_of_block() * kExpandKept + r) * kProductWidth + c];
#pragma unroll
        for (uint32_t l = 0; l < kLoads; ++l) sums[r][l] += factors[l] * factor;
      }
    }
  }
#pragma unroll
  for (uint32_t r = 0; r < kExpandKept; ++r)
#pragma unroll
    for (uint32_t l = 0; l < kLoads; ++l)
      if (exists(r, l))
        target[at(r, l)] = kTakeOut ? before[r][l] - sums[r][l] : sums[r][l] * scale;
}

}  // namespace penstock::kernels::cuda::low_rank

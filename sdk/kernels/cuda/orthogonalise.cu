// Orthogonalisation on a device; see low_rank.hpp. The rules, and the arithmetic of each entry, are
// equal to ../cpu/orthogonalise.cpp; only the order of the sums over rows differs. All steps are
// queued; a state on the device determines the steps that have work:
//
//   sum_gram, factor_gram<0>, solve_rows     Cholesky-QR
//   sum_gram, factor_gram<1>, solve_rows     again, unless the determinant shows once suffices
//   project_columns                          Gram-Schmidt, if a pivot was too small
#include <kernels/cuda/block.cuh>
#include <kernels/cuda/low_rank.hpp>
#include <kernels/cuda/queue.hpp>

#include <bit>
#include <cfloat>
#include <cmath>

namespace penstock::kernels::cuda::low_rank {
namespace {

// ../cpu/orthogonalise.cpp explains these numbers.
constexpr double kOwnPivot = 1e-10;
constexpr double kLongestPivot = 1e-13;
constexpr double kOnePassDeterminant = 1e-6;
constexpr double kDependent = 1e-7;
constexpr int kMaxProjections = 4;

constexpr uint32_t kStagedFloats = 8192;   // for rows that are multiplied with each other
constexpr uint32_t kSharedRank = 48;       // up to this rank, a Gram matrix fits shared memory
constexpr uint32_t kSolvedDoubles = 4096;  // for rows that are being solved

struct State {
  uint32_t solve;  // there is a factor to solve with
  uint32_t again;  // one pass was not enough
  uint32_t project;
};

// Whether the call has any work.
__device__ inline bool is_wanted(const uint64_t* wanted) {
  return wanted == nullptr || *wanted != 0;
}

// Returns to the first thread of each group of `chains` neighbouring threads the sum of `mine` over
// the group. `chains` is a power of two; the chains are joined by halving.
__device__ inline double join_chains(double* values, double mine, uint32_t chains) {
  values[threadIdx.x] = mine;
  for (uint32_t half = chains / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x % chains < half) {
      mine += values[threadIdx.x + half];
      values[threadIdx.x] = mine;
    }
  }
  __syncthreads();  // free for the next
  return mine;
}

// The largest power of two of chains that `threads` threads have for each of rank^2 entries.
constexpr uint32_t chains_of(uint32_t rank, uint32_t threads) {
  uint32_t chains = 1;
  while (chains * 2 * rank * rank <= threads) chains *= 2;
  return chains;
}

// ---- Gram matrices ----

struct GramPlan {
  uint32_t entry_blocks;  // blocks for the rank^2 entries of a tile
  uint64_t tile_rows;
  uint64_t tiles;
};
GramPlan plan_gram(uint64_t rows, uint32_t rank) {
  const auto entry_blocks = static_cast<uint32_t>(pieces(uint64_t{rank} * rank, kGramThreads));
  const uint64_t wanted = kGramBlocks > entry_blocks ? kGramBlocks / entry_blocks : 1;
  uint64_t tile_rows = pieces(rows, wanted);
  tile_rows = pieces(tile_rows, kGramFewest) * kGramFewest;
  return {entry_blocks, tile_rows, rows > 0 ? pieces(rows, tile_rows) : 0};
}

// gram[tile][j * rank + k], k <= j, = the sum of p[i][j] p[i][k] over the rows of a tile, in
// double, where every product is exact. Row i of a tile's stage belongs to chain i mod chains.
__global__ void __launch_bounds__(kGramThreads)
    sum_gram(const float* p, uint64_t rows, uint32_t rank, GramPlan plan, bool second,
             const uint64_t* wanted, const State* state, double* gram) {
  __shared__ float staged[kStagedFloats];
  __shared__ double sums[kGramThreads];
  if (second ? state->again == 0 : !is_wanted(wanted)) return;
  const uint32_t chains = chains_of(rank, kGramThreads);
  const uint64_t tile = blockIdx.x / plan.entry_blocks;
  const uint32_t entry = blockIdx.x % plan.entry_blocks * kGramThreads + threadIdx.x / chains;
  const uint32_t j = entry / rank, k = entry % rank;
  const bool is_mine = entry < rank * rank && k <= j;
  const uint32_t fit = kStagedFloats / rank;
  const uint32_t stage_rows = fit < kGramFewest ? fit : kGramFewest;
  const uint64_t begin = tile * plan.tile_rows;
  const uint64_t end = begin + plan.tile_rows < rows ? begin + plan.tile_rows : rows;
  double sum = 0;
  for (uint64_t stage = begin; stage < end; stage += stage_rows) {
    const auto count = static_cast<uint32_t>(end - stage < stage_rows ? end - stage : stage_rows);
    __syncthreads();
    for (uint32_t e = threadIdx.x; e < count * rank; e += kGramThreads)
      staged[e] = p[stage * rank + e];
    __syncthreads();
    if (is_mine)
      for (uint32_t i = threadIdx.x % chains; i < count; i += chains)
        sum += double{staged[i * rank + j]} * double{staged[i * rank + k]};
  }
  sum = join_chains(sums, sum, chains);
  if (is_mine && threadIdx.x % chains == 0) gram[tile * rank * rank + entry] = sum;
}

// a[rank x rank] <- the sum over tiles, which are distributed to chains; own[j] <- a[j][j].
__device__ inline void join_gram(const double* gram, uint64_t tiles, uint32_t rank, double* sums,
                                 double* a, double* own) {
  const uint32_t chains = chains_of(rank, kFactorThreads), entries = rank * rank;
  for (uint32_t first = 0; first < entries; first += kFactorThreads / chains) {
    const uint32_t entry = first + threadIdx.x / chains;
    const uint32_t j = entry / rank, k = entry % rank;
    const bool is_mine = entry < entries && k <= j;
    double sum = 0;
    if (is_mine)
      for (uint64_t tile = threadIdx.x % chains; tile < tiles; tile += chains)
        sum += gram[tile * entries + entry];
    sum = join_chains(sums, sum, chains);
    if (!is_mine || threadIdx.x % chains != 0) continue;
    a[entry] = sum;
    if (j == k) own[j] = sum;
  }
  __syncthreads();
}

// Cholesky, column by column. Each column's share is subtracted from the rest of the matrix as soon
// as it is known, which is the CPU's order for each entry. roots[k] <- the diagonal. Returns the
// result of factor_gram on the CPU to all threads, because all threads compute it.
__device__ inline double factor(uint32_t rank, const double* own, double* a, double* roots) {
  double longest = 0, determinant = 1;
  for (uint32_t j = 0; j < rank; ++j) longest = own[j] > longest ? own[j] : longest;
  for (uint32_t k = 0; k < rank; ++k) {
    const double pivot = a[k * rank + k];
    const bool trusted =
        pivot <= DBL_MAX && pivot > kOwnPivot * own[k] && pivot > kLongestPivot * longest;
    if (!trusted) return 0;
    determinant *= pivot / own[k];
    if (determinant < DBL_MIN) determinant = DBL_MIN;
    const double root = std::sqrt(pivot);
    if (threadIdx.x == 0) roots[k] = root;
    const uint32_t rest = rank - k - 1;
    for (uint32_t j = threadIdx.x; j < rest; j += kFactorThreads) a[(k + 1 + j) * rank + k] /= root;
    __syncthreads();
    for (uint32_t e = threadIdx.x; e < rest * rest; e += kFactorThreads) {
      const uint32_t j = k + 1 + e / rest, i = k + 1 + e % rest;
      if (i <= j) a[j * rank + i] -= a[j * rank + k] * a[i * rank + k];
    }
    __syncthreads();
  }
  return determinant;
}

// lower[rank x rank] <- the factor of the Gram matrix, with the inverses of its diagonal in place
// of the diagonal. Sets the state. One block.
template <bool kSecond>
__global__ void __launch_bounds__(kFactorThreads)
    factor_gram(const double* gram, uint64_t tiles, uint32_t rank, const uint64_t* wanted,
                State* state, double* lower) {
  __shared__ double small[kSharedRank * kSharedRank];
  __shared__ double sums[kFactorThreads], own[kMostRank], roots[kMostRank];
  if (kSecond && state->again == 0) {
    if (threadIdx.x == 0) state->solve = 0;
    return;
  }
  if (!kSecond && !is_wanted(wanted)) {
    if (threadIdx.x == 0) *state = State{};
    return;
  }
  double* const a = rank <= kSharedRank ? small : lower;
  join_gram(gram, tiles, rank, sums, a, own);
  const double determinant = factor(rank, own, a, roots);
  if (threadIdx.x == 0) {
    state->solve = determinant > 0 ? 1 : 0;
    state->project = determinant > 0 ? 0 : 1;
    if (!kSecond) state->again = determinant > 0 && !(determinant > kOnePassDeterminant) ? 1 : 0;
  }
  if (determinant == 0) return;
  __syncthreads();
  for (uint32_t e = threadIdx.x; e < rank * rank; e += kFactorThreads) {
    const uint32_t j = e / rank, k = e % rank;
    if (k == j)
      lower[e] = 1 / roots[j];
    else if (k < j)
      lower[e] = a[e];
  }
}

// A thread solves a row: x_j = (p[i][j] - sum_k<j lower[j][k] x_k) / lower[j][j].
__global__ void __launch_bounds__(kSolveThreads)
    solve_rows(float* p, uint64_t rows, uint32_t rank, uint32_t rows_of_block, const double* lower,
               const State* state) {
  __shared__ double solved[kSolvedDoubles];
  if (state->solve == 0 || threadIdx.x >= rows_of_block) return;
  const uint64_t row = uint64_t{blockIdx.x} * rows_of_block + threadIdx.x;
  if (row >= rows) return;
  float* const values = p + row * rank;
  for (uint32_t j = 0; j < rank; ++j) {
    double rest = values[j];
    for (uint32_t k = 0; k < j; ++k)
      rest -= lower[j * rank + k] * solved[k * rows_of_block + threadIdx.x];
    rest *= lower[j * rank + j];
    solved[j * rows_of_block + threadIdx.x] = rest;
    values[j] = static_cast<float>(rest);
  }
}

// ---- Gram-Schmidt ----

// The columns of p for the threads of one block. Only thread i mod kFactorThreads reads and writes
// row i.
struct Columns {
  float* p;
  uint64_t rows;
  uint32_t rank;
  double* sums;  // [kFactorThreads / kWarp], shared

  template <typename Use>
  __device__ void each_row(const Use& use) const {
    for (uint64_t i = threadIdx.x; i < rows; i += kFactorThreads) use(p + i * rank);
  }
  // All threads must call it and receive equal bits: lanes and then warps are joined by halving.
  __device__ double dot(uint32_t a, uint32_t b) const {
    double sum = 0;
    each_row([&](const float* row) { sum += double{row[a]} * double{row[b]}; });
    sum = warp_sum(sum);
    __syncthreads();
    if (lane() == 0) sums[warp_of_block()] = sum;
    __syncthreads();
    static_assert(kFactorThreads == kWarp * kWarp);
    return warp_sum(sums[lane()]);
  }
  __device__ double finite_length(uint32_t j) const {
    const double length = std::sqrt(dot(j, j));
    return length <= DBL_MAX ? length : 0.0;  // not for a NaN
  }
  __device__ void clear(uint32_t j) const {
    each_row([&](float* row) { row[j] = 0; });
  }
  __device__ void divide(uint32_t j, double length) const {
    each_row([&](float* row) { row[j] = static_cast<float>(row[j] / length); });
  }
  __device__ void subtract(uint32_t j, uint32_t k, double factor) const {
    each_row([&](float* row) {
      row[j] = static_cast<float>(row[j] - factor * static_cast<double>(row[k]));
    });
  }
  // Makes column j orthogonal to the earlier columns. Returns the length that is left, 0 if only
  // rounding is left.
  __device__ double project_out(uint32_t j, double length, double floor) const {
    for (int pass = 0; pass < kMaxProjections; ++pass) {
      for (uint32_t k = 0; k < j; ++k) subtract(j, k, dot(k, j));
      const double rest = std::sqrt(dot(j, j));
      if (!(rest > floor)) return 0;
      if (rest > 0.5 * length) return rest;
      length = rest;
    }
    return 0;
  }
  // Returns whether column j is not zero afterwards.
  __device__ bool orthogonalise(uint32_t j, double longest) const {
    double length = finite_length(j);
    if (!(length > kDependent * longest)) {
      clear(j);
      return false;
    }
    // The power of two below the length.
    const double scale =
        std::bit_cast<double>(std::bit_cast<uint64_t>(length) & 0x7ff0000000000000u);
    divide(j, scale);
    length /= scale;
    const double to_longest = longest / scale;
    const double floor = kDependent * (length > to_longest ? length : to_longest);
    const double rest = project_out(j, length, floor);
    if (rest > 0)
      divide(j, rest);
    else
      clear(j);
    return rest > 0;
  }
};

// One block. All threads make equal decisions, because all threads have equal sums.
__global__ void __launch_bounds__(kFactorThreads)
    project_columns(float* p, uint64_t rows, uint32_t rank, const State* state,
                    uint64_t* zero_columns) {
  __shared__ double sums[kFactorThreads / kWarp];
  uint64_t zeros = 0;
  if (state->project != 0) {
    const Columns columns{p, rows, rank, sums};
    double longest = 0;
    for (uint32_t j = 0; j < rank; ++j) {
      const double length = columns.finite_length(j);
      longest = length > longest ? length : longest;
    }
    for (uint32_t j = 0; j < rank; ++j) zeros += columns.orthogonalise(j, longest) ? 0 : 1;
  }
  if (threadIdx.x == 0 && zero_columns != nullptr) *zero_columns = zeros;
}

// ---- Workspace ----

constexpr uint64_t kStateBytes = 64;
static_assert(sizeof(State) <= kStateBytes);

bool is_rank(uint64_t rank) {
  return rank > 0 && rank <= kMostRank;
}

}  // namespace

uint64_t orthogonalise_workspace_bytes(uint64_t rows, uint64_t rank) noexcept {
  if (!is_rank(rank)) return 0;
  const GramPlan plan = plan_gram(rows, static_cast<uint32_t>(rank));
  return kStateBytes + (plan.tiles + 1) * rank * rank * sizeof(double);
}

int32_t orthogonalise(float* p, uint64_t rows, uint64_t rank, uint64_t* zero_columns,
                      Workspace workspace, void* stream, const uint64_t* wanted) noexcept {
  if (!is_rank(rank) || (rows > 0 && p == nullptr) || workspace.data == nullptr ||
      !aligned(workspace.data, 64) || workspace.bytes < orthogonalise_workspace_bytes(rows, rank))
    return cudaErrorInvalidValue;
  const auto columns = static_cast<uint32_t>(rank);
  const GramPlan plan = plan_gram(rows, columns);
  auto* const state = static_cast<State*>(workspace.data);
  auto* const lower = reinterpret_cast<double*>(static_cast<char*>(workspace.data) + kStateBytes);
  double* const gram = lower + rank * rank;
  const uint32_t fit = kSolvedDoubles / columns;
  const uint32_t rows_of_block = fit < kSolveThreads ? fit : kSolveThreads;
  Queue queue(stream);
  for (const bool second : {false, true}) {
    queue.run<sum_gram>(plan.tiles * plan.entry_blocks, kGramThreads, p, rows, columns, plan,
                        second, wanted, state, gram);
    if (second)
      queue.run<factor_gram<true>>(1, kFactorThreads, gram, plan.tiles, columns, wanted, state,
                                   lower);
    else
      queue.run<factor_gram<false>>(1, kFactorThreads, gram, plan.tiles, columns, wanted, state,
                                    lower);
    queue.run<solve_rows>(pieces(rows, rows_of_block), kSolveThreads, p, rows, columns,
                          rows_of_block, lower, state);
  }
  queue.run<project_columns>(1, kFactorThreads, p, rows, columns, state, zero_columns);
  return queue.error();
}

}  // namespace penstock::kernels::cuda::low_rank

// See factor.hpp.
//
//   look            notes whether any entry is not zero
//   ChooseFactor    the state or random numbers, according to the note
//   KeepSum         the sum instead of the state, according to the note
//   fill_columns    random numbers in columns that are zero
#include <kernels/cuda/elements.cuh>
#include <kernels/cuda/factor.hpp>
#include <kernels/cuda/low_rank.hpp>
#include <kernels/cuda/random_normal.cuh>
#include <kernels/cuda/values.hpp>

namespace penstock::kernels::cuda::low_rank {
namespace {

// The findings of the device, for the later kernels.
struct Found {
  uint64_t entries;       // 1: some entry is not zero
  uint64_t zeros_alone;   // 1: all entries are zero
  uint64_t zero_columns;  // after the first orthogonalisation
};
constexpr uint64_t kFoundBytes = 64;
static_assert(sizeof(Found) <= kFoundBytes);

// Whether any of `count` numbers, `stride` apart, is not zero. All threads of a block must call it;
// mostly the first few numbers decide.
__device__ inline bool any_entry(const float* values, uint64_t count, uint64_t stride) {
  __shared__ uint32_t any;
  if (threadIdx.x == 0) any = 0;
  for (uint64_t first = 0; first < count; first += kFactorThreads) {
    __syncthreads();
    const uint64_t i = first + threadIdx.x;
    if (i < count && values[i * stride] != 0.0f) any = 1;
    __syncthreads();
    if (any != 0) return true;
  }
  return false;
}

// One block.
__global__ void __launch_bounds__(kFactorThreads)
    look(const float* values, uint64_t count, Found* found) {
  const bool any = any_entry(values, count, 1);
  if (threadIdx.x != 0) return;
  found->entries = any ? 1 : 0;
  found->zeros_alone = any ? 0 : 1;
}

struct ChooseFactor {
  using In = float;
  using Facts = bool;  // whether to draw
  const float* state;
  float* in_use;
  uint64_t base;  // of the random numbers
  const Found* found;
  __device__ bool facts(uint64_t) const { return found->zeros_alone != 0; }
  __device__ float load(uint64_t i) const { return state[i]; }
  __device__ void store(uint64_t i, float kept, bool draws) const {
    in_use[i] = draws ? normal_number(base, i) : kept;
  }
};

struct KeepSum {
  using In = float;
  using Facts = bool;  // whether to keep
  const float* sum;
  float* state;
  const Found* found;
  __device__ bool facts(uint64_t) const { return found->entries != 0; }
  __device__ float load(uint64_t i) const { return sum[i]; }
  __device__ void store(uint64_t i, float entry, bool keeps) const {
    if (keeps) state[i] = entry;
  }
};

// One block per column; a block reads no other column.
__global__ void __launch_bounds__(kFactorThreads)
    fill_columns(float* factor, uint64_t rows, uint32_t rank, uint64_t base, const Found* found) {
  const uint64_t column = blockIdx.x;
  if (found->zero_columns == 0 || any_entry(factor + column, rows, rank)) return;
  for (uint64_t i = threadIdx.x; i < rows; i += kFactorThreads)
    factor[i * rank + column] = normal_number(base, i * rank + column);
}

uint64_t base_of(const FactorSource& source) {
  return normal_base(source.seed, source.gradient, source.stream);
}

// The parts of a workspace; `Found` lies at its beginning.
struct Room {
  explicit Room(const Workspace& workspace)
      : found(static_cast<Found*>(workspace.data)),
        rest{static_cast<char*>(workspace.data) + kFoundBytes, workspace.bytes - kFoundBytes} {}
  Found* found;
  Workspace rest;
};

bool legal(uint64_t rows, uint64_t rank, const float* from, const float* to,
           const Workspace& workspace) {
  return rank > 0 && rank <= kMostRank && (rows == 0 || (from != nullptr && to != nullptr)) &&
         workspace.data != nullptr && aligned(workspace.data, 64) &&
         workspace.bytes >= factor_workspace_bytes(rows, rank);
}

}  // namespace

uint64_t factor_workspace_bytes(uint64_t rows, uint64_t rank) noexcept {
  const uint64_t bytes = orthogonalise_workspace_bytes(rows, rank);
  return bytes > 0 ? kFoundBytes + bytes : 0;
}

int32_t draw_factor(float* factor, uint64_t rows, uint64_t rank, const FactorSource& source,
                    Workspace workspace, void* stream) noexcept {
  if (!legal(rows, rank, factor, factor, workspace)) return cudaErrorInvalidValue;
  const int32_t error =
      random_normal(source.seed, source.gradient, source.stream, 0, rows * rank, factor, stream);
  if (error != 0) return error;
  return orthogonalise(factor, rows, rank, nullptr, Room(workspace).rest, stream);
}

int32_t use_factor(const float* state, float* in_use, uint64_t rows, uint64_t rank,
                   const FactorSource& source, Workspace workspace, void* stream) noexcept {
  if (!legal(rows, rank, state, in_use, workspace)) return cudaErrorInvalidValue;
  const Room room(workspace);
  Queue queue(stream);
  queue.run<look>(1, kFactorThreads, state, rows * rank, room.found);
  each_element(queue, ChooseFactor{state, in_use, base_of(source), room.found}, rows * rank);
  if (queue.error() != 0) return queue.error();
  return orthogonalise(in_use, rows, rank, nullptr, room.rest, stream, &room.found->zeros_alone);
}

int32_t keep_factor(const float* sum, float* state, uint64_t rows, uint64_t rank,
                    const FactorSource& source, Workspace workspace, void* stream) noexcept {
  if (!legal(rows, rank, sum, state, workspace)) return cudaErrorInvalidValue;
  const Room room(workspace);
  Queue queue(stream);
  queue.run<look>(1, kFactorThreads, sum, rows * rank, room.found);
  each_element(queue, KeepSum{sum, state, room.found}, rows * rank);
  if (queue.error() != 0) return queue.error();
  const int32_t error = orthogonalise(state, rows, rank, &room.found->zero_columns, room.rest,
                                      stream, &room.found->entries);
  if (error != 0) return error;
  const auto columns = static_cast<uint32_t>(rank);
  queue.run<fill_columns>(rows > 0 ? rank : 0, kFactorThreads, state, rows, columns,
                          base_of(source), room.found);
  if (queue.error() != 0) return queue.error();
  return orthogonalise(state, rows, rank, nullptr, room.rest, stream, &room.found->zero_columns);
}

}  // namespace penstock::kernels::cuda::low_rank

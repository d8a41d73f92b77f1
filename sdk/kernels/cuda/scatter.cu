// Single entries by index; see values.hpp.
#include <kernels/cuda/elements.cuh>
#include <kernels/cuda/values.hpp>

namespace penstock::kernels::cuda {
namespace {

// A first pass checks all indices. `good` goes down from `count` to the first index that is out of
// range; *repeats, unless null, becomes 1 if the indices do not ascend.
__global__ void __launch_bounds__(kWarp) begin_check(uint64_t count, uint64_t* good) {
  if (threadIdx.x == 0) *good = count;
}

struct CheckIndices {
  struct In {
    uint32_t index;
    uint32_t next;
  };
  using Facts = NoFacts;
  const uint32_t* indices;
  uint64_t count;
  uint64_t n;
  uint64_t* good;
  uint32_t* repeats;
  __device__ NoFacts facts(uint64_t) const { return {}; }
  __device__ In load(uint64_t j) const {
    const uint32_t index = indices[j];
    return {index, repeats != nullptr && j + 1 < count ? indices[j + 1] : index};
  }
  __device__ void store(uint64_t j, In in, NoFacts) const {
    if (in.index >= n) atomicMin(reinterpret_cast<Long*>(good), Long{j});
    if (repeats != nullptr && j + 1 < count && in.next <= in.index) atomicOr(repeats, 1u);
  }
};

struct AddAt {
  struct In {
    uint32_t index;
    float value;
  };
  struct Facts {
    bool allowed;
  };
  const uint32_t* indices;
  const float* values;
  uint64_t count;
  float* out;
  const uint64_t* good;
  const uint32_t* repeats;
  __device__ Facts facts(uint64_t) const { return {*good == count && *repeats == 0}; }
  __device__ In load(uint64_t j) const { return {indices[j], values[j]}; }
  __device__ void store(uint64_t, In in, Facts f) const {
    if (f.allowed) out[in.index] += in.value;
  }
};

struct ZeroAt {
  using In = uint32_t;
  using Facts = AddAt::Facts;
  const uint32_t* indices;
  uint64_t count;
  float* work;
  const uint64_t* good;
  __device__ Facts facts(uint64_t) const { return {*good == count}; }
  __device__ uint32_t load(uint64_t j) const { return indices[j]; }
  __device__ void store(uint64_t, uint32_t index, Facts f) const {
    if (f.allowed) work[index] = 0;
  }
};

struct GatherFrom {
  using In = uint32_t;
  using Facts = AddAt::Facts;
  const float* x;
  const uint32_t* indices;
  uint64_t count;
  float* values;
  const uint64_t* good;
  __device__ Facts facts(uint64_t) const { return {*good == count}; }
  __device__ uint32_t load(uint64_t j) const { return indices[j]; }
  __device__ void store(uint64_t j, uint32_t index, Facts f) const {
    if (f.allowed) values[j] = x[index];
  }
};

// One warp, 32 entries at a time. Lanes with equal indices take turns, lower lanes first; the fence
// between turns makes one lane's sum visible to the next lane.
__global__ void __launch_bounds__(kWarp)
    add_in_order(const uint32_t* indices, const float* values, uint64_t count, float* out,
                 const uint64_t* good, const uint32_t* repeats) {
  if (*good != count || *repeats == 0) return;  // all lanes
  volatile float* const sums = out;
  for (uint64_t first = 0; first < count; first += kWarp) {
    const uint64_t j = first + lane();
    const bool exists = j < count;
    // Lanes behind the end match no index: each has its own number above 32 bits.
    const uint64_t index = exists ? indices[j] : (uint64_t{1} << 32) + lane();
    const float value = exists ? values[j] : 0.0f;
    const uint32_t turn =
        static_cast<uint32_t>(__popc(__match_any_sync(kAllLanes, index) & lanes_before()));
    for (uint32_t now = 0; __ballot_sync(kAllLanes, turn >= now) != 0; ++now) {
      if (exists && turn == now) sums[index] = sums[index] + value;
      __threadfence();
      __syncwarp();
    }
  }
}

bool legal(const uint32_t* indices, const void* values, uint64_t count, const void* array,
           uint64_t n, const uint64_t* good) {
  if (good == nullptr || n > uint64_t{1} << 32) return false;
  return count == 0 || (indices != nullptr && values != nullptr && (n == 0 || array != nullptr));
}

void queue_check(Queue& queue, const uint32_t* indices, uint64_t count, uint64_t n, uint64_t* good,
                 uint32_t* repeats) {
  queue.run<begin_check>(1, kWarp, count, good);
  each_element(queue, CheckIndices{indices, count, n, good, repeats}, count);
}

}  // namespace

int32_t scatter_add(const uint32_t* indices, const float* values, uint64_t count, float* out,
                    uint64_t n, uint64_t* good, Workspace workspace, void* stream) noexcept {
  if (!legal(indices, values, count, out, n, good) || workspace.data == nullptr ||
      !aligned(workspace.data, 64) || workspace.bytes < kScatterWorkspaceBytes)
    return cudaErrorInvalidValue;
  auto* const repeats = static_cast<uint32_t*>(workspace.data);
  Queue queue(stream);
  queue.zero(repeats, sizeof *repeats);
  queue_check(queue, indices, count, n, good, repeats);
  each_element(queue, AddAt{indices, values, count, out, good, repeats}, count);
  if (count > 1) queue.run<add_in_order>(1, kWarp, indices, values, count, out, good, repeats);
  return queue.error();
}

int32_t zero_at(const uint32_t* indices, uint64_t count, float* work, uint64_t n, uint64_t* good,
                void* stream) noexcept {
  if (!legal(indices, work, count, work, n, good)) return cudaErrorInvalidValue;
  Queue queue(stream);
  queue_check(queue, indices, count, n, good, nullptr);
  each_element(queue, ZeroAt{indices, count, work, good}, count);
  return queue.error();
}

int32_t gather(const float* x, uint64_t n, const uint32_t* indices, uint64_t count, float* values,
               uint64_t* good, void* stream) noexcept {
  if (!legal(indices, values, count, x, n, good)) return cudaErrorInvalidValue;
  Queue queue(stream);
  queue_check(queue, indices, count, n, good, nullptr);
  each_element(queue, GatherFrom{x, indices, count, values, good}, count);
  return queue.error();
}

}  // namespace penstock::kernels::cuda

// See reusing.hpp.
#include <kernels/cuda/elements.cuh>
#include <kernels/cuda/reusing.hpp>
#include <kernels/reused_threshold.hpp>

#include <bit>

namespace penstock::kernels::cuda {
namespace {

// The aged state: only every second step runs these kernels, hence the 2.
__device__ ReusedThreshold aged(const float* state) {
  ReusedThreshold reused = ReusedThreshold::load(state);
  reused.age += 2;
  return reused;
}

__global__ void __launch_bounds__(kWarp) begin(ReuseRules rules, const float* state, Reusing* s) {
  if (threadIdx.x != 0) return;
  const ReusedThreshold reused = aged(state);
  s->by_rows = rules.is_late && reused.settled != 0 ? 1 : 0;
  s->threshold = s->by_rows == 0 && reused.serves(rules.warms_up)
                     ? reused.threshold * rules.unit
                     : std::bit_cast<float>(0x7fc00000u);
}

__global__ void __launch_bounds__(kWarp) end(ReuseRules rules, const Reusing* s, float* state) {
  if (threadIdx.x != 0 || s->by_rows != 0) return;
  ReusedThreshold reused = aged(state);
  const bool served = reused.serves(rules.warms_up) && s->reached.passed >= rules.least;
  if (!served)
    reused.learn(std::bit_cast<float>(s->reached.smallest) / rules.unit, rules.warms_up,
                 rules.reuse_steps);
  reused.store(state);
}

struct ReplaceByRows {
  using In = uint32_t;
  using Facts = bool;
  const Reusing* s;
  const uint32_t* rows;
  uint64_t k;
  uint32_t* indices;
  uint64_t* count;
  __device__ bool facts(uint64_t) const { return s->by_rows != 0; }
  __device__ uint32_t load(uint64_t j) const { return rows[j]; }
  __device__ void store(uint64_t j, uint32_t index, bool by_rows) const {
    if (!by_rows) return;
    indices[j] = index;
    if (j == 0) *count = k;
  }
};

}  // namespace

int32_t begin_reuse(const ReuseRules& rules, const float* state, Reusing* s,
                    void* stream) noexcept {
  if (state == nullptr || s == nullptr) return cudaErrorInvalidValue;
  Queue queue(stream);
  queue.run<begin>(1, kWarp, rules, state, s);
  return queue.error();
}

int32_t end_reuse(const ReuseRules& rules, const Reusing* s, float* state, void* stream) noexcept {
  if (state == nullptr || s == nullptr) return cudaErrorInvalidValue;
  Queue queue(stream);
  queue.run<end>(1, kWarp, rules, s, state);
  return queue.error();
}

int32_t replace_by_rows(const Reusing* s, const uint32_t* rows, uint64_t k, uint32_t* indices,
                        uint64_t* count, void* stream) noexcept {
  if (s == nullptr || k == 0 || rows == nullptr || indices == nullptr || count == nullptr)
    return cudaErrorInvalidValue;
  Queue queue(stream);
  each_element(queue, ReplaceByRows{s, rows, k, indices, count}, k);
  return queue.error();
}

}  // namespace penstock::kernels::cuda

// Helpers of the kernels of steering.hpp. Internal to the CUDA kernels.
#pragma once

#include <cuda_runtime.h>
#include <kernels/cuda/steering.hpp>

#include <bit>
#include <cmath>

namespace penstock::kernels::cuda {

__device__ inline float no_threshold() {
  return std::bit_cast<float>(0x7fc00000u);
}

// The parts of a state: threshold, steps since the last estimate, learned numbers.
__device__ inline bool reuses(const float* state, const SteeringRules& rules) {
  return state[0] > 0 && state[1] < rules.reuse_period;
}
__device__ inline const float* learned(const float* state) {
  return state + 2;
}
__device__ inline float* learned(float* state) {
  return state + 2;
}

// The threshold for the selection. `fresh` is the new estimate; a step that reuses a threshold
// ignores it.
__device__ inline float usable(const float* state, const SteeringRules& rules, float fresh) {
  const float threshold = (reuses(state, rules) ? state[0] * rules.unit : fresh) * rules.slack;
  return threshold > 0 && threshold < INFINITY ? threshold : no_threshold();
}

// Sets s->threshold by a fit in stages (staged_fit.cu); the arguments are as in `estimate`.
int32_t fit_in_stages(const StagedRule& rule, const SteeringRules& rules, const float* x,
                      uint64_t n, const float* state, Steering* s, Workspace workspace,
                      void* stream) noexcept;

}  // namespace penstock::kernels::cuda

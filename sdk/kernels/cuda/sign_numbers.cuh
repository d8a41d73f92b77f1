// The numbers for which the signs of a run stand. Internal to the CUDA kernels.
#pragma once

#include <cuda_runtime.h>
#include <kernels/cuda/sign.hpp>

namespace penstock::kernels::cuda {

struct SidesOfZero {
  float plus;
  float minus;
};

__device__ inline SidesOfZero numbers_of_run(const float* numbers, bool mirrored, uint64_t run) {
  if (mirrored) return {numbers[run], -numbers[run]};
  return {numbers[2 * run], numbers[2 * run + 1]};
}

inline bool legal(const SignRuns& runs) {
  return runs.run != 0 && runs.run % 64 == 0;
}

}  // namespace penstock::kernels::cuda

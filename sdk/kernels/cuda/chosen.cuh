// Helpers of the kernels over chosen entries. Internal to the CUDA kernels.
#pragma once

#include <cuda_runtime.h>
#include <kernels/cuda/sparse_values.hpp>

namespace penstock::kernels::cuda {

__device__ inline uint64_t count_of(const ChosenEntries& chosen) {
  if (chosen.count == nullptr) return chosen.capacity;
  return *chosen.count < chosen.capacity ? *chosen.count : chosen.capacity;
}

inline bool legal(const ChosenEntries& chosen) {
  return chosen.capacity == 0 || (chosen.work != nullptr && chosen.indices != nullptr);
}

}  // namespace penstock::kernels::cuda

// The dynamic tree (../dynamic_tree.hpp) in a device's memory. Internal to the CUDA kernels.
#pragma once

#include <cuda_runtime.h>
#include <kernels/dynamic_tree.hpp>

namespace penstock::kernels::cuda {

// Neighbouring threads read different numbers, so the tree is read through the first cache, not
// from constant memory.
__device__ constexpr DynamicTree kDynamicTree = make_dynamic_tree();

// The code nearest to a ratio of at most 1 in magnitude. Its level is the number of ends below the
// magnitude, found by halving. The last end is above all ratios, so seven steps find a level among
// 128.
__device__ inline uint8_t nearest_code(float ratio) {
  const uint32_t bits = std::bit_cast<uint32_t>(ratio);
  const float reach = std::bit_cast<float>(bits & 0x7fffffffu);
  int32_t level = 0;
  for (int32_t step = kTreePositive / 2; step > 0; step /= 2)
    if (reach > kDynamicTree.ends[level + step - 1]) level += step;
  if (reach > kDynamicTree.ends[level]) ++level;
  return tree_code(level, bits >> 31 != 0);
}

}  // namespace penstock::kernels::cuda

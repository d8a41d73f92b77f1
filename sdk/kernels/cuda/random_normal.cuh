// One normal number of a stream (random_normal.hpp). Internal to the CUDA kernels.
#pragma once

#include <cuda_runtime.h>
#include <kernels/element/normal.hpp>

#include <cmath>

namespace penstock::kernels::cuda {

// The number `element` of the stream whose base is normal_base(seed, gradient, stream).
__device__ inline float normal_number(uint64_t base, uint64_t element) {
  const uint64_t bits = normal_bits(base, element);
  return static_cast<float>(std::sqrt(squared_radius(bits)) *
                            cosine_of_turn(static_cast<uint32_t>(bits)));
}

}  // namespace penstock::kernels::cuda

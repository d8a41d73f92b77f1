// Random words of up to 2^32 neighbouring elements (random_uniform.hpp): they lie in at most two
// blocks of 2^32, whose keys the host computes. Internal to the CUDA kernels.
#pragma once

#include <cuda_runtime.h>
#include <kernels/random_uniform.hpp>

namespace penstock::kernels::cuda {

inline constexpr uint64_t kMostWords = uint64_t{1} << 32;

class WordsOf {
 public:
  // The words of the elements from `first` on.
  WordsOf(RandomKey key, uint64_t first)
      : here_(random_block(key, first)),
        next_(random_block(key, first + kMostWords)),
        first_(static_cast<uint32_t>(first)),
        in_here_(kMostWords - (first & 0xffffffffu)) {}

  // The word of element first + i.
  __device__ uint32_t operator[](uint64_t i) const {
    return random_word(i < in_here_ ? here_ : next_, first_ + static_cast<uint32_t>(i));
  }

 private:
  RandomBlock here_;
  RandomBlock next_;
  uint32_t first_;
  uint64_t in_here_;
};

}  // namespace penstock::kernels::cuda

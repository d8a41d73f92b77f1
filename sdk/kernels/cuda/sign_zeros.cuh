// The zeros of many senders in one tile of words. Internal to the CUDA kernels.
//
// A sender gives its zeros as a plane or as an ascending list, or has no zeros. The search for the
// begin of a tile in a list takes many steps, so all senders are searched at once, one per thread.
// If no zero of a list falls into the tile, as is nearly always the case, there is no further work.
#pragma once

#include <kernels/cuda/block.cuh>
#include <kernels/cuda/sign.hpp>

namespace penstock::kernels::cuda {

// The shared memory of a block that handles the senders of a call one after the other. A tile has
// kWords words.
template <uint32_t kWords>
struct TileZeros {
  uint32_t begin[kMostSenders];  // position in each sender's list
  uint32_t end[kMostSenders];
  uint32_t nonzero[2 * kWords];  // half words of one sender's plane

  // All threads must call this before `fill`. `get(s)` gives the Signs of sender s.
  template <typename Get>
  __device__ void find(Get&& get, uint32_t n_senders, uint64_t first_word) {
    if (threadIdx.x < n_senders) {
      const uint32_t s = threadIdx.x;
      const Signs signs = get(s);
      const bool listed = signs.nonzero == nullptr && signs.n_zeros > 0;
      begin[s] = listed ? lower_bound(signs, first_word * 64) : 0;
      end[s] = listed ? lower_bound(signs, (first_word + kWords) * 64) : 0;
    }
    __syncthreads();
  }

  // All threads must call this. Returns whether sender `s` has listed zeros in this tile; if so,
  // `nonzero` is its plane until the next call.
  __device__ bool fill(const Signs& signs, uint32_t s, uint64_t first_word) {
    if (begin[s] == end[s]) return false;  // all threads
    __syncthreads();                       // the previous sender's plane has been read
    for (uint32_t h = threadIdx.x; h < 2 * kWords; h += blockDim.x) nonzero[h] = 0xffffffffu;
    __syncthreads();
    for (uint32_t j = begin[s] + threadIdx.x; j < end[s]; j += blockDim.x) {
      const uint64_t in_tile = signs.zeros[j] - first_word * 64;
      if (in_tile >= kWords * 64) continue;  // the list is not ascending: a mistake of its sender
      atomicAnd(&nonzero[in_tile / 32], ~(1u << (in_tile % 32)));
    }
    __syncthreads();
    return true;
  }

  __device__ uint64_t word(uint32_t w) const {
    return uint64_t{nonzero[2 * w + 1]} << 32 | nonzero[2 * w];
  }

 private:
  // The first entry of a list that is at least `position`.
  __device__ static uint32_t lower_bound(const Signs& signs, uint64_t position) {
    uint64_t low = 0, high = signs.n_zeros;
    while (low < high) {
      const uint64_t middle = (low + high) / 2;
      if (signs.zeros[middle] < position)
        low = middle + 1;
      else
        high = middle;
    }
    return static_cast<uint32_t>(low);
  }
};

}  // namespace penstock::kernels::cuda

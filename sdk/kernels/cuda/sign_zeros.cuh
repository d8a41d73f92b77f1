// The zeros of many senders in one tile of words. Internal to the CUDA kernels.
//
// A sender names its zeros by a plane, by an ascending list, or has none. Where in each list a tile
// begins takes a search of many steps, so that is done for all senders at once, one to a thread;
// where no zero of a list falls into the tile, nearly always, nothing more is to be done.
#pragma once

#include <kernels/cuda/block.cuh>
#include <kernels/cuda/sign.hpp>

namespace penstock::kernels::cuda {

// Shared memory of a block that goes through the senders of a call. kWords words of a tile.
template <uint32_t kWords>
struct TileZeros {
  uint32_t begin[kMostSenders];  // in each sender's list
  uint32_t end[kMostSenders];
  uint32_t nonzero[2 * kWords];  // half words of one sender's plane

  // For all threads, before a sender is asked for. `get(s)` gives the Signs of sender s.
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

  // For all threads: whether sender `s` has listed zeros here. If so, `nonzero` is its plane until
  // the next call.
  __device__ bool fill(const Signs& signs, uint32_t s, uint64_t first_word) {
    if (begin[s] == end[s]) return false;  // all threads
    __syncthreads();                       // the plane of the sender before has been read
    for (uint32_t h = threadIdx.x; h < 2 * kWords; h += blockDim.x) nonzero[h] = 0xffffffffu;
    __syncthreads();
    for (uint32_t j = begin[s] + threadIdx.x; j < end[s]; j += blockDim.x) {
      const uint64_t in_tile = signs.zeros[j] - first_word * 64;
      if (in_tile >= kWords * 64) continue;  // the list is not ascending: its sender's mistake
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

// Kernels that treat each element by itself. Internal to the CUDA kernels.
//
// `Body` says what happens:
//   using In = ...;                                    what is read of an element
//   using Facts = ...;                                 what the elements of a run share
//   Facts facts(uint64_t run) const;
//   In load(uint64_t i) const;
//   void store(uint64_t i, In in, const Facts&) const;
// Elements come in runs, each with facts of its own; a run of 0 is all of them. A tile never
// crosses the end of a run, so the facts are found once per thread.
#pragma once

#include <kernels/cuda/block.cuh>
#include <kernels/cuda/queue.hpp>

namespace penstock::kernels::cuda {

inline constexpr uint32_t kElementTile = kElementThreads * kElementItems;

struct NoFacts {};

template <typename Body>
__global__ void __launch_bounds__(kElementThreads)
    treat_elements(Body body, uint64_t n, uint64_t run, uint32_t tiles_per_run) {
  const uint64_t which = blockIdx.x / tiles_per_run;
  const uint64_t run_end = (which + 1) * run < n ? (which + 1) * run : n;
  const uint64_t first =
      which * run + uint64_t{blockIdx.x % tiles_per_run} * kElementTile + threadIdx.x;
  const typename Body::Facts facts = body.facts(which);
  typename Body::In in[kElementItems];
#pragma unroll
  for (uint32_t j = 0; j < kElementItems; ++j) {
    const uint64_t i = first + j * kElementThreads;
    if (i < run_end) in[j] = body.load(i);
  }
#pragma unroll
  for (uint32_t j = 0; j < kElementItems; ++j) {
    const uint64_t i = first + j * kElementThreads;
    if (i < run_end) body.store(i, in[j], facts);
  }
}

template <typename Body>
void each_element(Queue& queue, const Body& body, uint64_t n, uint64_t run = 0) {
  if (n == 0) return;
  if (run == 0 || run > n) run = n;
  // Beyond what a grid can hold, run() refuses; so the cast loses nothing that would be used.
  const uint64_t tiles_per_run = pieces(run, kElementTile);
  queue.run(treat_elements<Body>, pieces(n, run) * tiles_per_run, kElementThreads, body, n, run,
            static_cast<uint32_t>(tiles_per_run));
}

}  // namespace penstock::kernels::cuda

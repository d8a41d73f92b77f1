// Kernels that treat each element by itself. Internal to the CUDA kernels.
//
// `Body` says what happens:
//   using In = ...;                                    what is read of an element
//   using Facts = ...;                                 what the elements of a run share
//   Facts facts(uint64_t run) const;
//   In load(uint64_t i) const;
//   void store(uint64_t i, In in, const Facts&) const;
// Elements come in runs, each with facts of its own; a run of 0 is all of them. A tile never
// crosses the end of a run, so the facts are found once per thread. Of short runs each warp of a
// block has a tile of its own: with one for the whole block most threads would have nothing to do.
#pragma once

#include <kernels/cuda/block.cuh>
#include <kernels/cuda/queue.hpp>

namespace penstock::kernels::cuda {

inline constexpr uint32_t kElementTile = kElementThreads * kElementItems;

struct NoFacts {};

// What a thread has of n elements in runs: those of run `run` from `first` on, in steps of kTeam,
// and before `end`. A team is the threads that share a tile: a block or a warp.
template <uint32_t kTeam>
struct Place {
  uint64_t run;
  uint64_t first;
  uint64_t end;

  __device__ Place(uint64_t n, uint64_t length, uint32_t tiles_per_run) {
    const uint32_t tile =
        blockIdx.x * (kElementThreads / kTeam) + (kTeam < kElementThreads ? warp_of_block() : 0);
    const uint64_t begin = uint64_t{tile / tiles_per_run} * length;
    run = tile / tiles_per_run;
    end = begin + length < n ? begin + length : n;
    first = begin + uint64_t{tile % tiles_per_run} * (kTeam * kElementItems) + threadIdx.x % kTeam;
  }
  // Whether there is such a run: the last block has a warp for some that are not.
  __device__ bool exists(uint64_t n) const { return kTeam == kElementThreads || first < n; }
  __device__ uint64_t at(uint32_t j) const { return first + uint64_t{j} * kTeam; }
};

template <uint32_t kTeam, typename Body>
__global__ void __launch_bounds__(kElementThreads)
    treat_elements(Body body, uint64_t n, uint64_t run, uint32_t tiles_per_run) {
  const Place<kTeam> mine(n, run, tiles_per_run);
  if (!mine.exists(n)) return;
  const typename Body::Facts facts = body.facts(mine.run);
  typename Body::In in[kElementItems];
#pragma unroll
  for (uint32_t j = 0; j < kElementItems; ++j)
    if (mine.at(j) < mine.end) in[j] = body.load(mine.at(j));
#pragma unroll
  for (uint32_t j = 0; j < kElementItems; ++j)
    if (mine.at(j) < mine.end) body.store(mine.at(j), in[j], facts);
}

// Calls use.template operator()<kTeam>(run, tiles_per_run, blocks) with the team for runs of `run`.
// Beyond what a grid can hold, Queue::run refuses; so the cast loses nothing that would be used.
template <typename Use>
void with_team(uint64_t n, uint64_t run, const Use& use) {
  if (run == 0 || run > n) run = n;
  const auto of = [&]<uint32_t kTeam>() {
    const uint64_t tiles_per_run = pieces(run, kTeam * kElementItems);
    const uint64_t blocks = pieces(pieces(n, run) * tiles_per_run, kElementThreads / kTeam);
    use.template operator()<kTeam>(run, static_cast<uint32_t>(tiles_per_run), blocks);
  };
  if (run <= kShortRun && run < n && pieces(n, run) <= kMostShortRuns)
    of.template operator()<kWarp>();
  else
    of.template operator()<kElementThreads>();
}

template <typename Body>
void each_element(Queue& queue, const Body& body, uint64_t n) {
  if (n == 0) return;
  const uint64_t tiles = pieces(n, kElementTile);
  queue.run<treat_elements<kElementThreads, Body>>(tiles, kElementThreads, body, n, n,
                                                   static_cast<uint32_t>(tiles));
}

template <typename Body>
void each_element(Queue& queue, const Body& body, uint64_t n, uint64_t run) {
  if (n == 0) return;
  with_team(n, run, [&]<uint32_t kTeam>(uint64_t length, uint32_t tiles_per_run, uint64_t blocks) {
    queue.run<treat_elements<kTeam, Body>>(blocks, kElementThreads, body, n, length, tiles_per_run);
  });
}

}  // namespace penstock::kernels::cuda

// Kernels that handle each element separately. Internal to the CUDA kernels.
//
// `Body` defines the operation:
//   using In = ...;                                    the data that is read for an element
//   using Facts = ...;                                 the data that the elements of a run share
//   Facts facts(uint64_t run) const;
//   In load(uint64_t i) const;
//   void store(uint64_t i, In in, const Facts&) const;
// Elements come in runs, each with its own facts; a run of 0 means one run of all elements. A tile
// never crosses the end of a run, so each thread finds the facts once. For short runs each warp of
// a block has its own tile; with one tile for the whole block most threads would have no work.
#pragma once

#include <kernels/cuda/block.cuh>
#include <kernels/cuda/queue.hpp>

#include <algorithm>
#include <span>
#include <type_traits>

namespace penstock::kernels::cuda {

inline constexpr uint32_t kElementTile = kElementThreads * kElementItems;

struct NoFacts {};

// The elements of a thread out of n elements in runs: the elements of run `run` from `first` to
// before `end`, in steps of kTeam. A team is the set of threads that share a tile: a block or a
// warp.
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
  // Whether the run exists: the last block may have warps without a run.
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
// Queue::run refuses more blocks than a grid can hold, so the cast never cuts a number that is
// used.
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

// ---- Several arrays in a launch ----

// As many bodies as fit in a launch, with the number of their elements; by value, so that they
// travel with the launch. Blocks are numbered over all bodies: first the blocks of the first body,
// then the blocks of the second.
template <typename Body>
struct Several {
  static constexpr uint32_t kMost = 4000 / (sizeof(Body) + sizeof(uint64_t) + sizeof(uint32_t));

  void add(const Body& body, uint64_t count) {
    bodies[n] = body;
    counts[n] = count;
    first_blocks[n++] = static_cast<uint32_t>(blocks);
    blocks += pieces(count, kElementTile);
  }

  Body bodies[kMost];
  uint64_t counts[kMost];
  uint32_t first_blocks[kMost];
  uint32_t n = 0;
  uint64_t blocks = 0;
};

// The body of a block: the last body whose first block is at or before this block. A body without
// blocks begins where the next body does.
template <typename Body>
__device__ uint32_t body_of_block(const Several<Body>& several) {
  uint32_t begin = 0, end = several.n;
  while (end - begin > 1) {
    const uint32_t middle = begin + (end - begin) / 2;
    if (several.first_blocks[middle] <= blockIdx.x)
      begin = middle;
    else
      end = middle;
  }
  return begin;
}

// Handles a tile of `body`, whose elements share no facts. kWhole avoids the conditions, because
// nvcc has fewer loads in flight with them.
template <bool kWhole, typename Body>
__device__ void treat_tile(const Body& body, uint64_t first, uint64_t end) {
  typename Body::In in[kElementItems];
#pragma unroll
  for (uint32_t j = 0; j < kElementItems; ++j)
    if (kWhole || first + j * kElementThreads < end) in[j] = body.load(first + j * kElementThreads);
#pragma unroll
  for (uint32_t j = 0; j < kElementItems; ++j)
    if (kWhole || first + j * kElementThreads < end)
      body.store(first + j * kElementThreads, in[j], {});
}

// body.as(use) calls use(body) with the body for all elements of an array.
template <typename Body>
__global__ void __launch_bounds__(kElementThreads) treat_several(Several<Body> several) {
  const uint32_t which = body_of_block(several);
  const uint64_t tile = uint64_t{blockIdx.x - several.first_blocks[which]} * kElementTile;
  const uint64_t end = several.counts[which];
  several.bodies[which].as([&](const auto& body) {
    if (tile + kElementTile <= end)
      treat_tile<true>(body, tile + threadIdx.x, end);
    else
      treat_tile<false>(body, tile + threadIdx.x, end);
  });
}

// Calls launch(several) until all `arrays` had their turn: body_of(array) is the body for the
// count_of(array) elements of an array. Body is the result type of body_of; it is explicit because
// nvcc cannot name the type of a kernel that is deduced from a lambda.
template <typename Body, typename Array, typename BodyOf, typename CountOf, typename Launch>
void each_several(std::span<const Array> arrays, const BodyOf& body_of, const CountOf& count_of,
                  const Launch& launch) {
  while (!arrays.empty()) {
    const auto some = arrays.first(std::min<uint64_t>(arrays.size(), Several<Body>::kMost));
    Several<Body> several;
    for (const Array& array : some) several.add(body_of(array), count_of(array));
    launch(several);
    arrays = arrays.subspan(some.size());
  }
}
template <typename Body, typename Array, typename BodyOf, typename CountOf>
void each_element_of(Queue& queue, std::span<const Array> arrays, const BodyOf& body_of,
                     const CountOf& count_of) {
  each_several<Body>(arrays, body_of, count_of, [&](const Several<Body>& several) {
    queue.run<treat_several<Body>>(several.blocks, kElementThreads, several);
  });
}
// The arrays name their numbers of elements: array.count.
template <typename Body, typename Array, typename BodyOf>
void each_element_of(Queue& queue, std::span<const Array> arrays, const BodyOf& body_of) {
  each_element_of<Body>(queue, arrays, body_of, [](const Array& array) { return array.count; });
}

}  // namespace penstock::kernels::cuda

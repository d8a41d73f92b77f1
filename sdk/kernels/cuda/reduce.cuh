// Reductions in a fixed order. Internal to the CUDA kernels.
//
// `Term` defines the sum:
//   using Sum = ...;                                   zero at first; a plain struct or number
//   __device__ void prepare();                         once per thread, before all other calls
//   __device__ void add(Sum&, float x) const;
//   __device__ void join(Sum&, const Sum& other) const;
//   __device__ void close(Sum&) const;                 once, after a thread's last add
//   __device__ Sum of(float x) const;                  optional, if cheaper than add
#pragma once

#include <kernels/cuda/block.cuh>
#include <kernels/cuda/queue.hpp>
#include <kernels/cuda/workspace.hpp>

namespace penstock::kernels::cuda {

// Returns to thread 0 the sum of `mine` over the block; threads are joined by halving.
template <typename Term>
__device__ typename Term::Sum join_block(const Term& term, typename Term::Sum mine) {
  using Sum = typename Term::Sum;
  alignas(16) __shared__ unsigned char memory[kSumThreads * sizeof(Sum)];
  Sum* const sums = reinterpret_cast<Sum*>(memory);
  sums[threadIdx.x] = mine;
  for (uint32_t width = kSumThreads / 2; width > 0; width /= 2) {
    __syncthreads();
    if (threadIdx.x < width) {
      term.join(mine, sums[threadIdx.x + width]);
      sums[threadIdx.x] = mine;
    }
  }
  return mine;
}

// Returns to thread 0 of the block the sum of x[begin, end), at most kSumTile elements. `term` must
// be prepared.
template <typename Term>
__device__ typename Term::Sum sum_tile(const Term& term, const float* x, uint64_t begin,
                                       uint64_t end) {
  typename Term::Sum sum{};
  for (uint64_t i = begin + threadIdx.x; i < end; i += kSumThreads * kSumLoads) {
    float in[kSumLoads];
#pragma unroll
    for (uint32_t j = 0; j < kSumLoads; ++j)
      in[j] = i + j * kSumThreads < end ? x[i + j * kSumThreads] : 0.0f;
#pragma unroll
    for (uint32_t j = 0; j < kSumLoads; ++j)
      if (i + j * kSumThreads < end) term.add(sum, in[j]);
  }
  term.close(sum);
  return join_block(term, sum);
}

// Returns to thread 0 of the block the sum of the tiles' sums[0, n): the sum of tile t goes to
// chain t mod kSumThreads.
template <typename Term>
__device__ typename Term::Sum sum_of_tiles(const Term& term, const typename Term::Sum* sums,
                                           uint64_t n) {
  typename Term::Sum sum{};
  for (uint64_t t = threadIdx.x; t < n; t += kSumThreads) term.join(sum, sums[t]);
  return join_block(term, sum);
}

// Writes sums[tile]: one block per tile; tiles do not cross runs.
template <typename Term>
__global__ void __launch_bounds__(kSumThreads)
    sum_tiles(Term term, const float* x, uint64_t n, uint64_t run, uint32_t tiles_per_run,
              typename Term::Sum* sums) {
  const uint64_t which = blockIdx.x / tiles_per_run;
  const uint64_t run_end = (which + 1) * run < n ? (which + 1) * run : n;
  const uint64_t begin = which * run + uint64_t{blockIdx.x % tiles_per_run} * kSumTile;
  const uint64_t end = begin + kSumTile < run_end ? begin + kSumTile : run_end;
  term.prepare();
  const typename Term::Sum all = sum_tile(term, x, begin, end);
  if (threadIdx.x == 0) sums[blockIdx.x] = all;
}

// One block per run.
template <typename Term>
__global__ void __launch_bounds__(kSumThreads)
    join_tiles(Term term, const typename Term::Sum* sums, uint32_t tiles_per_run, uint64_t n_tiles,
               typename Term::Sum* results) {
  const uint64_t first = uint64_t{blockIdx.x} * tiles_per_run;
  const uint64_t end = first + tiles_per_run < n_tiles ? first + tiles_per_run : n_tiles;
  const typename Term::Sum all = sum_of_tiles(term, sums + first, end - first);
  if (threadIdx.x == 0) results[blockIdx.x] = all;
}

// ---- Short runs: one team per run, a warp or a few lanes of a warp ----

template <typename T>
__device__ T from_lane_xor(const T& value, uint32_t distance) {
  static_assert(sizeof(T) % sizeof(uint32_t) == 0);
  uint32_t words[sizeof(T) / sizeof(uint32_t)];
  memcpy(words, &value, sizeof value);
#pragma unroll
  for (uint32_t& word : words) word = __shfl_xor_sync(kAllLanes, word, distance);
  T other;
  memcpy(&other, words, sizeof other);
  return other;
}

// The chains of a lane in a short run. Every lane of a team has kChains chains: in terms of a block
// of kSumThreads threads, the chains of the lane's place and of the places kTeam, 2 kTeam, ...
// behind it. Chains that no run reaches are left out: they are zero, which changes no sum.
template <typename Term, uint32_t kTeam, uint32_t kTurns>
struct ChainsOfLane {
  static constexpr uint32_t kChains = 8;
  static_assert(kTurns == 1 || kTeam * kChains == kSumThreads);
  const Term& term;
  float in[kTurns][kChains];
  uint32_t left;  // elements of the run from this lane's first element on

  __device__ ChainsOfLane(const Term& of, const float* mine, uint32_t n) : term(of), left(n) {
#pragma unroll
    for (uint32_t t = 0; t < kTurns; ++t)
#pragma unroll
      for (uint32_t c = 0; c < kChains; ++c) in[t][c] = at(t, c) < left ? mine[at(t, c)] : 0.0f;
  }
  __device__ static uint32_t at(uint32_t turn, uint32_t chain) {
    return turn * kSumThreads + chain * kTeam;
  }
  // The sum of chains first, first + kStep, first + 2 kStep, ..., joined by halving, in the order
  // of join_block.
  template <uint32_t kStep>
  __device__ typename Term::Sum join(uint32_t first) const {
    if constexpr (kStep == kChains) {
      return chain(first);
    } else {
      typename Term::Sum sum = join<2 * kStep>(first);
      term.join(sum, join<2 * kStep>(first + kStep));
      return sum;
    }
  }

 private:
  __device__ typename Term::Sum chain(uint32_t c) const {
    if constexpr (kTurns == 1 && requires { term.of(in[0][c]); }) {
      return term.of(in[0][c]);  // a missing element is zero
    } else {
      typename Term::Sum sum{};
#pragma unroll
      for (uint32_t t = 0; t < kTurns; ++t)
        if (at(t, c) < left) term.add(sum, in[t][c]);
      term.close(sum);
      return sum;
    }
  }
};

// The sums of runs up to 8 kTeam, or with kTurns 4 up to kShortRun, with the bits of sum_tiles.
template <typename Term, uint32_t kTeam, uint32_t kTurns>
__global__ void __launch_bounds__(kSumThreads)
    sum_short_runs(Term term, const float* x, uint64_t n, uint64_t run, uint32_t n_runs,
                   typename Term::Sum* results) {
  const uint32_t in_team = threadIdx.x % kTeam;
  const uint32_t which = blockIdx.x * (kSumThreads / kTeam) + threadIdx.x / kTeam;
  const uint64_t first = which * run + in_team;
  const uint64_t end = (which + 1) * run < n ? (which + 1) * run : n;
  term.prepare();
  // Behind the last run, the lanes of a team have no elements; they stay for the other lanes of
  // their warp.
  const ChainsOfLane<Term, kTeam, kTurns> chains(
      term, x + first, first < end ? static_cast<uint32_t>(end - first) : 0);
  typename Term::Sum sum = chains.template join<1>(0);
#pragma unroll
  for (uint32_t width = kTeam / 2; width > 0; width /= 2)
    term.join(sum, from_lane_xor(sum, width));  // only the lanes below `width` need the result
  if (in_team == 0 && which < n_runs) results[which] = sum;
}

// The tiles of n elements in runs. A short last run has as many tiles as the other runs: its last
// tiles are empty, and their sums are zero.
struct SumPlan {
  uint64_t run;
  uint64_t tiles_per_run;
  uint64_t n_runs;
  uint64_t n_tiles() const { return tiles_per_run * n_runs; }
};
inline SumPlan plan_sum(uint64_t n, uint64_t run) {
  if (run == 0 || run > n) run = n;
  if (n == 0) return {0, 1, 1};  // one empty tile, so that the result is written
  return {run, pieces(run, kSumTile), pieces(n, run)};
}

template <typename Term>
int32_t reduce(const Term& term, const float* x, uint64_t n, uint64_t run,
               typename Term::Sum* results, const Workspace& workspace, void* stream) {
  using Sum = typename Term::Sum;
  if (results == nullptr || (n > 0 && x == nullptr)) return cudaErrorInvalidValue;
  const SumPlan plan = plan_sum(n, run);
  Queue queue(stream);
  const auto tiles_per_run = static_cast<uint32_t>(plan.tiles_per_run);
  if (plan.tiles_per_run == 1) {
    queue.run<sum_tiles<Term>>(plan.n_runs, kSumThreads, term, x, n, plan.run, 1, results);
    return queue.error();
  }
  if (workspace.data == nullptr || !aligned(workspace.data, 64) ||
      workspace.bytes < plan.n_tiles() * sizeof(Sum))
    return cudaErrorInvalidValue;
  auto* const sums = static_cast<Sum*>(workspace.data);
  queue.run<sum_tiles<Term>>(plan.n_tiles(), kSumThreads, term, x, n, plan.run, tiles_per_run,
                             sums);
  queue.run<join_tiles<Term>>(plan.n_runs, kSumThreads, term, sums, tiles_per_run, plan.n_tiles(),
                              results);
  return queue.error();
}

// Sums many runs, with one result per run.
template <typename Term>
int32_t reduce_runs(const Term& term, const float* x, uint64_t n, uint64_t run,
                    typename Term::Sum* results, const Workspace& workspace, void* stream) {
  const SumPlan plan = plan_sum(n, run);
  if (plan.n_runs == 1 || plan.run > kShortRun || plan.n_runs > kMostShortRuns)
    return reduce(term, x, n, run, results, workspace, stream);
  if (results == nullptr || x == nullptr) return cudaErrorInvalidValue;
  Queue queue(stream);
  const auto sum = [&]<uint32_t kTeam, uint32_t kTurns>() {
    queue.run<sum_short_runs<Term, kTeam, kTurns>>(pieces(plan.n_runs, kSumThreads / kTeam),
                                                   kSumThreads, term, x, n, plan.run,
                                                   static_cast<uint32_t>(plan.n_runs), results);
  };
  if (plan.run <= 64)
    sum.template operator()<8, 1>();
  else if (plan.run <= kSumThreads)
    sum.template operator()<kWarp, 1>();
  else
    sum.template operator()<kWarp, kShortRun / kSumThreads>();
  return queue.error();
}

}  // namespace penstock::kernels::cuda

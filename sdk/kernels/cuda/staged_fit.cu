// Fits in stages, for steering.hpp. Each look at the data is one launch. Its last block adds up the
// results of all blocks and continues the fit; a look that is not needed reads nothing. Sums have
// the bits of statistics and exceedances (reduce.hpp).
#include <kernels/cuda/reduce.cuh>
#include <kernels/cuda/reduce_terms.cuh>
#include <kernels/cuda/steering.cuh>

namespace penstock::kernels::cuda {
namespace {

__device__ void conclude(const SteeringRules& rules, const float* state, Steering* s) {
  const float correction = learned(state)[StagedRule::kCorrection];
  s->threshold = usable(state, rules, corrected(s->fit.threshold(), correction));
}

__global__ void __launch_bounds__(kWarp)
    begin_fit(StagedRule rule, SteeringRules rules, uint64_t n, const float* state, Steering* s) {
  if (threadIdx.x != 0) return;
  s->arrived = 0;
  s->fit = StagedFit();  // a fit without looks
  if (reuses(state, rules)) return conclude(rules, state, s);
  s->fit.begin(rule, n, rules.band.target, double{rules.unit}, learned(state));
}

// Sums all tiles. Returns true to one thread, the first thread of the last block; only it receives
// the sum.
template <typename Term>
__device__ bool sum_all(const Term& term, const float* x, uint64_t n, void* workspace,
                        uint32_t* arrived, typename Term::Sum& all) {
  auto* const sums = static_cast<typename Term::Sum*>(workspace);
  const uint64_t begin = uint64_t{blockIdx.x} * kSumTile;
  const uint64_t end = begin + kSumTile < n ? begin + kSumTile : n;
  const typename Term::Sum mine = sum_tile(term, x, begin, end);
  if (threadIdx.x == 0) sums[blockIdx.x] = mine;
  if (!last_block(arrived, gridDim.x)) return false;
  all = sum_of_tiles(term, sums, gridDim.x);
  return threadIdx.x == 0;
}

__global__ void __launch_bounds__(kSumThreads)
    look(StagedRule rule, SteeringRules rules, const float* x, uint64_t n, const float* state,
         void* workspace, Steering* s) {
  StagedFit& fit = s->fit;
  if (!fit.looks()) return;
  TailSample found;
  if (fit.looks_at_all()) {
    StatisticsOf term;
    term.logs = rule.wants_logs();
    StatisticsOf::Sum sum;
    if (!sum_all(term, x, n, workspace, &s->arrived, sum)) return;
    found = sample_of(sum, rule.wants_logs());
  } else {
    Exceedances sum;
    if (!sum_all(Exceeding{nullptr, fit.look()}, x, n, workspace, &s->arrived, sum)) return;
    found = sample_of(sum);
  }
  s->arrived = 0;
  fit.take(rule, found);
  if (!fit.looks()) conclude(rules, state, s);
}

}  // namespace

int32_t fit_in_stages(const StagedRule& rule, const SteeringRules& rules, const float* x,
                      uint64_t n, const float* state, Steering* s, Workspace workspace,
                      void* stream) noexcept {
  if (workspace.data == nullptr || !aligned(workspace.data, 64) ||
      workspace.bytes < pieces(n, kSumTile) * sizeof(StatisticsOf::Sum))
    return cudaErrorInvalidValue;
  Queue queue(stream);
  queue.run<begin_fit>(1, kWarp, rule, rules, n, state, s);
  for (uint32_t looks = rule.most_looks(); looks > 0; --looks)
    queue.run<look>(pieces(n, kSumTile), kSumThreads, rule, rules, x, n, state, workspace.data, s);
  return queue.error();
}

}  // namespace penstock::kernels::cuda

// See steering.hpp. One thread of each kernel works; the formulas are equal to the formulas of the
// methods on the CPU.
#include <kernels/cuda/queue.hpp>
#include <kernels/cuda/steering.cuh>
#include <kernels/cuda/tuning.hpp>

namespace penstock::kernels::cuda {
namespace {

constexpr uint32_t kTrimmedSteps = 5;

// ---- A normal law ----

__global__ void __launch_bounds__(kWarp)
    estimate_normal(double deviations, SteeringRules rules, uint64_t n, const float* state,
                    Steering* s) {
  if (threadIdx.x != 0) return;
  s->fitted = deviations * std::sqrt(s->facts.sum_of_squares / static_cast<double>(n));
  s->threshold = usable(state, rules, corrected(s->fitted, learned(state)[0]));
}

// ---- A position between the mean magnitude and the largest ----

struct Range {
  double mean;
  double largest;
  __device__ Range(const Steering& s, uint64_t n)
      : mean(s.facts.sum_of_magnitudes / static_cast<double>(n)), largest(s.facts.largest) {}
  __device__ float at(double position) const {
    return static_cast<float>(mean + position * (largest - mean));
  }
  __device__ double position_of(double threshold) const {
    return largest > mean ? (threshold - mean) / (largest - mean) : 0;
  }
};

__device__ bool searches(const float* state, const SteeringRules& rules) {
  return !reuses(state, rules) && !(learned(state)[0] > 0);
}

__device__ void write_probes(const Range& range, Steering* s) {
  const double step = s->width / (kMostProbes + 1);
  for (uint32_t j = 0; j < kMostProbes; ++j)
    s->probes[j] = range.at(s->low + static_cast<double>(j + 1) * step);
}

// Prepares the probes. No entry reaches a probe that is NaN, so the pass that counts for such
// probes reads nothing.
__global__ void __launch_bounds__(kWarp)
    begin_search(bool trimmed, SteeringRules rules, uint64_t n, const float* state, Steering* s) {
  if (threadIdx.x != 0) return;
  const Range range(*s, n);
  s->low = 0;
  s->width = 1;
  for (float& probe : s->probes) probe = no_threshold();
  if (!searches(state, rules)) {
    s->threshold = usable(state, rules, range.at(learned(state)[1]));
    return;
  }
  s->threshold = no_threshold();
  if (!trimmed) return write_probes(range, s);
  for (uint32_t j = 0; j < kTrimmedSteps; ++j)
    s->probes[j] = range.at(0.2 * static_cast<double>(kTrimmedSteps - 1 - j));
}

// Does four halvings with the counts of all thresholds that they may need. If the last pass finds
// no threshold, the lower end is taken, where more entries pass than wanted.
__global__ void __launch_bounds__(kWarp)
    halve(bool last, SteeringRules rules, uint64_t n, const float* state, Steering* s) {
  if (threadIdx.x != 0 || !searches(state, rules) || s->width == 0) return;
  const Range range(*s, n);
  uint32_t below = 0;  // probes at or below the lower end
  for (uint32_t half = (kMostProbes + 1) / 2; half > 0; half /= 2) {
    const uint32_t probe = below + half - 1;
    const uint64_t count = s->counts[probe];
    if (count >= rules.band.least && count <= rules.band.most) {
      s->threshold = usable(state, rules, s->probes[probe]);
      s->width = 0;  // found
      for (float& other : s->probes) other = no_threshold();
      return;
    }
    if (count > rules.band.most) below += half;
  }
  const double step = s->width / (kMostProbes + 1);
  s->low += static_cast<double>(below) * step;
  s->width = step;
  if (last)
    s->threshold = usable(state, rules, range.at(s->low));
  else
    write_probes(range, s);
}

// Takes the highest probe that enough entries reach.
__global__ void __launch_bounds__(kWarp)
    end_trimmed(SteeringRules rules, const float* state, Steering* s) {
  if (threadIdx.x != 0 || !searches(state, rules)) return;
  float found = 0;
  for (uint32_t j = kTrimmedSteps; j > 0; --j)
    if (s->counts[j - 1] >= rules.band.target) found = s->probes[j - 1] / rules.slack;
  s->threshold = usable(state, rules, found);
}

// ---- The outcome ----

struct Settled {
  uint64_t count;
  float threshold;  // would have let about the wanted number pass
  bool hit;         // the number of passed entries was in the band
};

__device__ Settled settle(const Steering& s, const SteeringRules& rules, uint64_t count) {
  if (count == 0) return {0, 0, false};
  Settled settled{count, s.threshold, s.reached.passed >= rules.band.least};
  if (!settled.hit || count == rules.band.most) {
    const float lowest = std::bit_cast<float>(s.reached.smallest);
    settled.hit = settled.hit && lowest < settled.threshold * 1.25f;
    settled.threshold = lowest;
  }
  const double excess = static_cast<double>(count) / static_cast<double>(rules.band.target);
  const double pull = count == rules.band.most ? 8 : 16;
  settled.threshold *= static_cast<float>(std::exp2(std::log2(excess) / pull));
  return settled;
}

__global__ void __launch_bounds__(kWarp)
    learn_from(SteeringLaw law, SteeringRules rules, const uint64_t* count, const Steering* s,
               uint64_t n, float* state) {
  if (threadIdx.x != 0) return;
  const Settled settled = settle(*s, rules, count == nullptr ? 0 : *count);
  const bool reuse = reuses(state, rules);
  float* const numbers = learned(state);
  if (!reuse && law.kind == SteeringLaw::kNormal) {
    if (n > 0) learn_correction(s->fitted, settled.threshold, numbers[0]);
  } else if (!reuse && law.kind == SteeringLaw::kStages) {
    if (n > 0) s->fit.learn(law.in_stages, settled.threshold, numbers);
  } else if (!reuse) {
    numbers[0] = settled.hit ? 1 : 0;
    numbers[1] = n == 0 ? 0 : static_cast<float>(Range(*s, n).position_of(settled.threshold));
  }
  state[1] = !settled.hit ? rules.reuse_period : reuse ? state[1] + 1 : 1;
  state[0] = settled.threshold / rules.unit;
}

int32_t search(const SteeringLaw& law, const SteeringRules& rules, const float* x, uint64_t n,
               const float* state, Steering* s, void* stream) {
  const bool trimmed = law.kind == SteeringLaw::kTrimmed;
  Queue queue(stream);
  queue.run<begin_search>(1, kWarp, trimmed, rules, n, state, s);
  for (uint32_t pass = 0; pass < (trimmed ? 1 : 2) && queue.error() == 0; ++pass) {
    const int32_t error =
        count_above(x, n, s->probes, trimmed ? kTrimmedSteps : kMostProbes, s->counts, stream);
    if (error != 0) return error;
    if (trimmed)
      queue.run<end_trimmed>(1, kWarp, rules, state, s);
    else
      queue.run<halve>(1, kWarp, pass == 1, rules, n, state, s);
  }
  return queue.error();
}

}  // namespace

int32_t estimate(const SteeringLaw& law, const SteeringRules& rules, const float* x, uint64_t n,
                 const float* state, Steering* s, Workspace workspace, void* stream) noexcept {
  if (n == 0 || x == nullptr || state == nullptr || s == nullptr) return cudaErrorInvalidValue;
  if (law.kind == SteeringLaw::kStages)
    return fit_in_stages(law.in_stages, rules, x, n, state, s, workspace, stream);
  const int32_t error = statistics(x, n, false, &s->facts, workspace, stream);
  if (error != 0) return error;
  if (law.kind != SteeringLaw::kNormal) return search(law, rules, x, n, state, s, stream);
  Queue queue(stream);
  queue.run<estimate_normal>(1, kWarp, law.deviations, rules, n, state, s);
  return queue.error();
}

int32_t learn(const SteeringLaw& law, const SteeringRules& rules, const uint64_t* count,
              const Steering* s, uint64_t n, float* state, void* stream) noexcept {
  if (s == nullptr || state == nullptr || (n > 0 && count == nullptr)) return cudaErrorInvalidValue;
  Queue queue(stream);
  queue.run<learn_from>(1, kWarp, law, rules, count, s, n, state);
  return queue.error();
}

}  // namespace penstock::kernels::cuda

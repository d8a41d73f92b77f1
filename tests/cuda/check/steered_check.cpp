// Thresholds from laws that are fitted on the device, and the corrections that a gradient learns.
#include <kernels/cuda/steering.hpp>
#include <kernels/select.hpp>
#include "check.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace penstock::kernels::cuda::check {
namespace {

constexpr CodePath kPath = CodePath::kPortable;

// ---- Steering: a step that estimates, a step that reuses, a step that misses ----

struct Steered {
  float threshold;
  uint64_t count;
  std::vector<float> state;
};

// One step of a law on the device, from `state`.
Steered step_of(const SteeringLaw& law, const SteeringRules& rules, const Array<float>& x,
                const std::vector<float>& before) {
  const uint64_t n = x.size();
  Array<float> state(before), values(rules.band.most);
  Array<uint32_t> indices(rules.band.most);
  Array<uint64_t> count(1);
  Array<Steering> steering(1);
  Scratch scratch(std::max(select_workspace_bytes(n, rules.band.most), reduce_workspace_bytes(n)));
  Steered result{};
  both_ways([&] { state.put(before), count.spoil(), steering.spoil(), scratch.spoil(); },
            [&](void* s) {
              int32_t error = estimate(law, rules, x.data(), n, state.data(), steering.data(),
                                       scratch.get(), s);
              if (error == 0)
                error = select_near(x.data(), n, &steering.data()->threshold, rules.band, false,
                                    indices.data(), values.data(), count.data(),
                                    &steering.data()->reached, scratch.get(), s);
              if (error == 0)
                error = learn(law, rules, count.data(), steering.data(), n, state.data(), s);
              return error;
            },
            [&] {
              result = {steering.host()[0].threshold, count.host()[0], state.host()};
            });
  return result;
}

void near(double got, double expected, const char* what) {
  REQUIRE(std::fabs(got - expected) <= 1e-6 * std::fabs(expected), what, got, expected);
}

void check_steering() {
  constexpr uint64_t n = 100000;
  const std::vector<float> values = normal(n, 3);
  const Array<float> x(values);
  const SteeringRules rules{{1000, 900, 1100}, 1, 2, 3};
  double squares = 0, sum = 0, largest = 0;
  for (const double value : values) {
    squares += value * value;
    sum += std::fabs(value);
    largest = std::max(largest, std::fabs(value));
  }
  // 2.5758 deviations have a hundredth of a normal law beyond them.
  const SteeringLaw normal_law{SteeringLaw::kNormal, 2.5758293};
  Steered step = step_of(normal_law, rules, x, {0, 0, 0});
  near(step.threshold, 2.5758293 * std::sqrt(squares / n), "a fitted threshold");
  REQUIRE(step.count >= 900 && step.count <= 1100, "near the wanted number", step.count);
  REQUIRE(step.state[1] == 1, "an estimate of this step");
  near(step.state[2], 2 * step.state[0] / step.threshold, "a correction");
  // The next step takes the threshold from the state, in the units of the gradient.
  const Steered next = step_of(normal_law, rules, x, step.state);
  near(next.threshold, 2 * step.state[0], "a threshold that is reused");
  REQUIRE(next.state[1] == 2 && next.state[2] == step.state[2], "nothing is learned");
  // If far too few entries reach the estimate, the step uses no threshold and corrects its state.
  const Steered missed = step_of(normal_law, rules, x, {0, 0, 10});
  REQUIRE(missed.count == 1000 && missed.state[1] == 3, "exactly the wanted number", missed.count);
  for (const SteeringLaw::Kind kind : {SteeringLaw::kBisection, SteeringLaw::kTrimmed}) {
    step = step_of({kind}, rules, x, {0, 0, 0, 0});
    REQUIRE(step.count >= 900 && step.count <= 1100, "between mean and largest", step.count);
    REQUIRE(step.state[2] == 1 || step.count == 1100, "a position is known");
    const double mean = sum / n;
    near(step.state[3], (2.0 * step.state[0] - mean) / (largest - mean), "the position");
  }
  const Array<float> zeros(std::vector<float>(500, 0.0f));
  step = step_of(normal_law, {{5, 5, 5}, 1, 1, 1}, zeros, {7, 9, 0});
  REQUIRE(step.count == 0 && step.state[0] == 0, "zeros never go", step.count);
}

// ---- Fits in stages ----

constexpr double kUnit = 2;  // unit of x, relative to the state

SteeringRules rules_of(uint64_t k, float reuse_period = 1) {
  return {{k, k - k / 10, k + k / 10}, 1, kUnit, reuse_period};
}

StagedFit fit_on_the_cpu(const StagedRule& rule, const std::vector<float>& x, uint64_t k,
                         const std::vector<float>& learned) {
  const uint64_t n = x.size();
  const bool logs = rule.wants_logs();
  StagedFit fit;
  fit.begin(rule, n, k, kUnit, learned.data());
  while (fit.looks())
    fit.take(rule, fit.looks_at_all()
                       ? sample_of(kernels::statistics(x.data(), n, {.logs = logs}, kPath), logs)
                       : sample_of(kernels::exceedances(x.data(), n, fit.look(), kPath)));
  return fit;
}

void check_fit(const StagedRule& rule, const Input& input, const std::vector<float>& learned) {
  const uint64_t n = input.x.size(), k = (n + 49) / 50;
  const std::string what = describe(input.name, n, "law", static_cast<int>(rule.law), "stages",
                                    rule.stages, "from", learned[StagedRule::kOrigin]);
  const StagedFit expected = fit_on_the_cpu(rule, input.x, k, learned);
  std::vector<float> before{0, 0};
  before.insert(before.end(), learned.begin(), learned.end());
  const Array<float> x(input.x), state(before);
  Array<Steering> steering(1);
  Scratch scratch(reduce_workspace_bytes(n));
  const SteeringLaw law{.kind = SteeringLaw::kStages, .in_stages = rule};
  both_ways([&] { steering.spoil(), scratch.spoil(); },
            [&](void* s) {
              return estimate(law, rules_of(k), x.data(), n, state.data(), steering.data(),
                              scratch.get(), s);
            },
            [&] {
              const Steering got = steering.host()[0];
              near(got.fit.threshold(), expected.threshold(), what.c_str());
              const float usable = corrected(expected.threshold(), learned[0]);
              if (usable > 0)
                near(got.threshold, usable, what.c_str());
              else
                REQUIRE(got.threshold != got.threshold, "no threshold", what);
            });
}

// If magnitudes are nearly equal, a gamma law depends on differences of logarithms, which the CPU
// computes only to 1e-7.
bool fits_gamma(const std::string& name) {
  return name == "normal" || name == "laplace" || name == "student" || name == "zeros";
}

void check_fits(const Extent& extent) {
  for (const uint64_t n : extent.few_sizes) {
    if (n == 0) continue;
    for (const Input& input : extent.inputs(n, true))
      for (const TailLaw law :
           {TailLaw::kExponential, TailLaw::kPareto, TailLaw::kGammaPareto, TailLaw::kGaussian})
        for (const uint32_t stages : {0, 1, 3, 16}) {
          if (law == TailLaw::kGammaPareto && !fits_gamma(input.name)) continue;
          const StagedRule rule{law, stages, 5, 0.02, 0.25};
          for (const float origin : {0.0f, 0.4f, 1e9f})
            check_fit(rule, input, {1.25f, 5, 0, 0, origin});
        }
  }
}

// Steps that add stages, because a normal law has lighter tails than the exponential law.
void check_adapted_stages() {
  constexpr uint64_t k = 500;
  const StagedRule rule{TailLaw::kExponential, 0, 8, 0.005, 0.25};
  const SteeringLaw law{.kind = SteeringLaw::kStages, .in_stages = rule};
  std::vector<float> state(2 + StagedRule::kLearned);
  for (uint64_t step = 0; step < 15; ++step) {
    const std::vector<float> values = normal(100000, step);
    const std::vector<float> before(state.begin() + 2, state.end());
    const Steered got = step_of(law, rules_of(k), Array<float>(values), state);
    REQUIRE(got.count >= k - k / 10 && got.count <= k + k / 10, "near k", step, got.count);
    const StagedFit fit = fit_on_the_cpu(rule, values, k, before);
    std::vector<float> expected = before;
    fit.learn(rule, static_cast<float>(got.state[0] * kUnit), expected.data());
    for (uint64_t i = 0; i < expected.size(); ++i)
      near(got.state[2 + i], expected[i], "what is learned");
    state = got.state;
  }
  REQUIRE(state[2 + StagedRule::kStages] >= 3, "stages are added", state[2 + StagedRule::kStages]);
}

// A look that is not wanted must not read: here there is no memory to read.
void check_unwanted_looks() {
  constexpr uint64_t n = 100000;
  const auto* const nowhere = reinterpret_cast<const float*>(uintptr_t{64});
  const SteeringLaw law{.kind = SteeringLaw::kStages,
                        .in_stages = {TailLaw::kGammaPareto, 16, 16, 0.01, 0.25}};
  std::vector<float> before(2 + StagedRule::kLearned);
  before[0] = 1.5f, before[1] = 2;
  const Array<float> state(before);
  Array<Steering> steering(1);
  Scratch scratch(reduce_workspace_bytes(n));
  both_ways([&] { steering.spoil(), scratch.spoil(); },
            [&](void* s) {
              return estimate(law, rules_of(1000, 3), nowhere, n, state.data(), steering.data(),
                              scratch.get(), s);
            },
            [&] {
              REQUIRE(steering.host()[0].threshold == 3, "a threshold that is reused",
                      steering.host()[0].threshold);
            });
}

}  // namespace

void check_steered(const Extent& extent) {
  check_steering();
  check_fits(extent);
  check_adapted_stages();
  check_unwanted_looks();
}

}  // namespace penstock::kernels::cuda::check

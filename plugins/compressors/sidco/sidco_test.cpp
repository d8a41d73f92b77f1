// SIDCo against plain loops with full sorts, its fits against the laws that they fit, and its
// promise about the number of sent entries.
#include <kernels/tail_fit.hpp>
#include <support/contraction.hpp>
#include <support/steered_oracle.hpp>

namespace penstock::test {
namespace {

LoadedPlugin plugin() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}

struct Setting {
  const char* law;
  int stages;
  double density = 0.02;
  int reuse = 1;
  const char* value_type = "fp32";
};

// The values above the origin: number, mean, population variance, mean logarithm.
struct Excess {
  double count = 0, mean = 0, variance = 0, mean_log = 0;
};
Excess excess_over(const std::vector<float>& x, float origin) {
  double sum = 0, squares = 0;
  Excess excess;
  for (const float value : x) {
    const float over = std::fabs(value) - origin;
    if (!(over > 0)) continue;
    sum += double{over};
    squares += double{over} * double{over};
    excess.mean_log += std::log(double{over});
    ++excess.count;
  }
  if (excess.count == 0) return excess;
  excess.mean = sum / excess.count;
  excess.mean_log /= excess.count;
  excess.variance = std::max(0.0, squares / excess.count - excess.mean * excess.mean);
  return excess;
}

// x with P(X > x) = share for a gamma law of scale 1: P(X <= x) is a series of positive terms.
double gamma_quantile(double shape, double share) {
  const auto below = [shape](double x) {
    double term = 1 / shape, sum = term;
    for (double i = 1; term > sum * 1e-17; ++i) sum += term *= x / (shape + i);
    return sum * std::exp(shape * std::log(x) - x) / std::tgamma(shape);
  };
  double low = 1e-300, high = 100 + 10 * shape;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (below(middle) < 1 - share ? low : high) = middle;
  }
  return high;
}

// z with P(|Z| > z) = share for a standard normal Z.
double normal_quantile(double share) {
  double low = 0, high = 40;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(middle / std::sqrt(2.0)) > share ? low : high) = middle;
  }
  return high;
}

// The magnitude over the origin that the wanted share of the values reaches, from the formulas of
// the paper; `first`: the origin is zero.
double quantile(const std::string& law, const Excess& excess, double wanted, bool first) {
  const double share = wanted / excess.count;
  if (!(share < 1) || excess.mean == 0) return 0;
  if (law == "exponential") return -excess.mean * std::log(share);
  if (law == "gaussian")
    return std::max(0.0, excess.mean + std::sqrt(excess.variance) * normal_quantile(share));
  const double s = std::log(excess.mean) - excess.mean_log;
  if (law == "gamma_pareto" && first && s > 1e-9) {
    const double shape = (3 - s + std::sqrt((s - 3) * (s - 3) + 24 * s)) / (12 * s);
    return excess.mean / shape * gamma_quantile(shape, share);
  }
  const double q = excess.mean * excess.mean / excess.variance;
  if (!(excess.variance > 1e-12 * excess.mean * excess.mean)) return excess.mean;
  const double shape = 0.5 * (q - 1);
  const double scale = 0.5 * excess.mean * (q + 1);
  if (std::fabs(shape) < 1e-6) return -scale * std::log(share);
  return scale * (1 - std::exp(shape * std::log(share))) / shape;
}

class Oracle {
 public:
  explicit Oracle(const Setting& setting) : setting_(setting) {}

  float estimate(SteeredOracle& gradient, const std::vector<float>& x) const {
    auto& learned = gradient.learned;
    const int stages = setting_.stages > 0 ? setting_.stages : std::max(1, int(learned["stages"]));
    double& threshold = learned["threshold"];
    threshold = learned["mean"] = 0;
    if (!x.empty()) fit(learned, x, stages);
    return static_cast<float>(threshold * (learned["correction"] > 0 ? learned["correction"] : 1));
  }

  void learn(SteeredOracle& gradient, float settled) const {
    auto& learned = gradient.learned;
    if (learned["threshold"] <= 0 || settled <= 0) return;
    learned["correction"] = static_cast<float>(settled / learned["threshold"]);
    if (setting_.stages > 0 || learned["mean"] <= 0) return;
    const double power = (settled - learned["threshold"]) / learned["mean"];
    learned["sum"] = static_cast<float>(float(learned["sum"]) +
                                        float(std::exp(std::min(3.0, std::max(-3.0, power)))));
    if (++learned["ratios"] < 5) return;
    const double mean = learned["sum"] / learned["ratios"];
    const double before = learned["stages"];
    double stages = std::max(1.0, before) + (mean < 0.8 ? 1 : mean > 1.2 ? -1 : 0);
    stages = std::min(std::max(stages, 1.0), std::ceil(std::log2(1 / setting_.density)));
    if (stages != before) learned["origin"] = 0;
    learned["stages"] = stages;
    learned["sum"] = learned["ratios"] = 0;
  }

 private:
  double wanted(double n, int stage, int stages) const {
    if (stage == stages) return static_cast<double>(kept_of(uint64_t(n), setting_.density));
    return n * 0.25 * std::pow(setting_.density / 0.25, double(stage - 1) / double(stages - 1));
  }

  void fit(std::map<std::string, double>& learned, const std::vector<float>& x, int stages) const {
    const auto n = static_cast<double>(x.size());
    double origin = stages == 1 ? 0 : learned["origin"];
    Excess above = excess_over(x, float(origin));
    const double expected = stages == 1 ? above.count : wanted(n, stages - 1, stages);
    const bool stale = origin <= 0 || above.count < expected / 2 || above.count > expected * 2;
    if (stages > 1 && stale) {
      origin = 0;
      above = excess_over(x, 0);
      for (int stage = 1; stage < stages; ++stage) {
        const double next =
            origin + quantile(setting_.law, above, wanted(n, stage, stages), origin == 0);
        const Excess further = excess_over(x, float(next));
        if (further.count == 0) break;
        origin = next;
        above = further;
      }
    }
    learned["threshold"] =
        origin + quantile(setting_.law, above, wanted(n, stages, stages), origin == 0);
    learned["mean"] = above.mean;
    if (stages == 1) return;
    if (above.count > expected)
      origin += quantile(setting_.law, above, expected, origin == 0);
    else if (above.count > 0 && above.count < expected)
      origin -= std::min(origin / 2, above.mean * std::log(expected / above.count));
    learned["origin"] = static_cast<float>(origin);
  }

  Setting setting_;
};

SentOracle fitted(const Setting& setting) {
  const Oracle oracle(setting);
  return steered(
      {.density = setting.density, .reuse_period = setting.reuse},
      [oracle](SteeredOracle& gradient, const std::vector<float>& x) {
        return oracle.estimate(gradient, x);
      },
      [oracle](SteeredOracle& gradient, float settled) { oracle.learn(gradient, settled); },
      setting.value_type);
}

OptionSettings options_of(const Setting& setting) {
  return {{"density", setting.density},
          {"law", setting.law},
          {"stages", setting.stages},
          {"reuse_period", setting.reuse},
          {"value_type", setting.value_type}};
}

void expect_equals_oracle(const Setting& setting, const std::vector<uint64_t>& numels,
                          uint64_t steps, const Distribution& distribution, uint32_t ranks) {
  expect_equals_steered_oracle(plugin(), options_of(setting), fitted(setting), numels, steps,
                               distribution, ranks);
}

TEST(Sidco, EqualsTheOracleOver100Steps) {
  for (const Distribution& distribution : distributions()) {
    for (const Setting& setting : {Setting{"exponential", 0}, Setting{"pareto", 2}})
      expect_equals_oracle(setting, {300, 0, 1, 57}, 100, distribution, 2);
    expect_equals_oracle({"exponential", 3, 0.02, 4}, {300, 2}, 30, distribution, 3);
    expect_equals_oracle({"pareto", 0, 0.05}, {300, 3}, 60, distribution, 4);
  }
}

// The kernel's logarithms are right to 1e-7: no entry drawn here lies so close to a threshold.
TEST(Sidco, GammaAndGaussianLawsEqualTheOracle) {
  for (const Distribution& distribution : distributions())
    for (const char* law : {"gamma_pareto", "gaussian"})
      for (const int stages : {0, 1, 3})
        expect_equals_oracle({law, stages}, {300, 0, 1, 57}, 40, distribution, 2);
}

TEST(Sidco, NarrowValuesEqualTheOracleAndLeaveTheirRoundingInWork) {
  for (const char* type : {"fp16", "bf16", "int8", "sign"})
    for (const Distribution& distribution : distributions())
      for (const Setting& setting :
           {Setting{"exponential", 0, 0.05, 1, type}, Setting{"pareto", 2, 0.05, 3, type}})
        expect_equals_oracle(setting, {300, 0, 1, 57}, 40, distribution, 3);
}

TEST(Sidco, AwkwardSizesEqualTheOracle) {
  for (const Distribution& distribution : distributions())
    expect_equals_oracle({"pareto", 3, 0.01}, awkward_sizes(), 2, distribution, 1);
}

TEST(Sidco, SixteenMillionElementsEqualTheOracle) {
  const Setting setting{"pareto", 2, 0.001};
  expect_large_gradients_equal({.plugin = plugin(), .options = options_of(setting)},
                               fitted(setting));
}

TEST(Sidco, KeepsTheShareWithinATenthOnDistinctMagnitudes) {
  expect_kept_within_a_tenth(plugin(), {});
  expect_kept_within_a_tenth(plugin(), {{"law", "gamma_pareto"}, {"stages", 2}});
}

TEST(Sidco, EachFitFindsTheQuantileOfItsOwnLaw) {
  constexpr uint64_t kEntries = 200000;
  Random random(3);
  const auto sample_of = [](const std::vector<double>& y) {
    kernels::TailSample sample{static_cast<double>(y.size()), 0, 0, 0, true};
    for (const double value : y) {
      sample.mean += value / sample.count;
      sample.mean_log += std::log(value) / sample.count;
    }
    for (const double value : y)
      sample.variance += (value - sample.mean) * (value - sample.mean) / sample.count;
    return sample;
  };
  std::vector<double> exponential, pareto, gamma, normal;
  for (uint64_t i = 0; i < kEntries; ++i) {
    exponential.push_back(-2 * std::log(random.uniform()));
    pareto.push_back((std::pow(random.uniform(), -0.1) - 1) / 0.1);
    const double z = random.gauss();
    gamma.push_back(z * z);  // shape 1/2, scale 2
    normal.push_back(std::fabs(z));
  }
  const auto found = [&](kernels::TailLaw law, const std::vector<double>& y) {
    return kernels::excess_for(law, sample_of(y), 0.001 * kEntries);
  };
  // The share above the threshold is within 10 % if the threshold is within 10 % of the mean excess
  // there.
  EXPECT_NEAR(found(kernels::TailLaw::kExponential, exponential), -2 * std::log(0.001), 0.2);
  EXPECT_NEAR(found(kernels::TailLaw::kPareto, pareto), (std::pow(0.001, -0.1) - 1) / 0.1, 0.3);
  EXPECT_NEAR(found(kernels::TailLaw::kGammaPareto, gamma), 3.2905267 * 3.2905267, 0.2);
  EXPECT_NEAR(found(kernels::TailLaw::kGammaPareto, std::vector<double>(kEntries, 3.0)), 3, 1e-6);
  // The Gaussian law is the control: as published, it uses mean and deviation of |x| instead of x,
  // so its result is wrong.
  EXPECT_GT(std::fabs(found(kernels::TailLaw::kGaussian, normal) - 3.2905), 0.2);
}

TEST(Sidco, StagesAreAdaptedForEachGradientAlone) {
  // Two gradients, laplace and normal: one stage of the exponential law fits the first; for the
  // second this law lets almost nothing pass, so stages are added.
  CompressorRig rig({.ranks = 1}, {{20000}, {20000}}, plugin(), {{"density", 0.001}});
  for (uint64_t step = 0; step < 40; ++step) {
    Tensors tensors;
    for (const Distribution& distribution : distributions()) {
      if (distribution.name == "laplace")
        tensors.insert(tensors.begin(), distribution.draw(20000, step));
      if (distribution.name == "gauss") tensors.push_back(distribution.draw(20000, step));
    }
    rig.step({tensors});
  }
  const auto stages = [&](uint64_t item) { return rig.compressor_state(0, item, "threshold")[3]; };
  EXPECT_LE(stages(0), 2);
  EXPECT_GE(stages(1), 3);
}

TEST(Sidco, CompensatingInTheSameSweepChangesNoBit) {
  for (const char* law : {"exponential", "gamma_pareto"})
    for (const int stages : {0, 3})
      expect_folding_changes_no_bit(
          plugin(), {{"density", 0.02}, {"law", law}, {"stages", stages}, {"reuse_period", 2}},
          {{30, 40}, {0}, {1}, {70, 70}});
}

TEST(Sidco, NothingIsLostOver100StepsOfEveryKindAndValueType) {
  expect_nothing_is_lost(plugin(), {{"density", 0.05}});
  expect_nothing_is_lost(plugin(), {{"density", 0.05}, {"law", "gamma_pareto"}, {"stages", 2}});
}

TEST(Sidco, PayloadsAreInput) {
  CompressorRig rig({.ranks = 2}, {{16}}, plugin(), {{"density", 0.5}});
  expect_sparse_payloads_are_input(rig);
}

TEST(Sidco, NarrowPayloadsAreInput) {
  for (const char* type : {"fp16", "bf16", "int8"}) {
    CompressorRig rig({.ranks = 2}, {{16}}, plugin(), {{"density", 0.5}, {"value_type", type}});
    expect_narrow_payloads_are_input(rig);
  }
}

TEST(Sidco, LeavesAtMostTheShareThatWasNotSent) {
  for (const char* law : {"exponential", "pareto", "gamma_pareto", "gaussian"})
    expect_contraction({.plugin = plugin(),
                        .options = {{"density", 0.05}, {"law", law}},
                        .shapes = {{300}, {0}, {1}, {57}, {20, 33}},
                        .rounding = 1e-6});
}

}  // namespace
}  // namespace penstock::test

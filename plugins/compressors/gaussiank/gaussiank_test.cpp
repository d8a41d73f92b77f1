// Gaussian-k against plain loops with full sorts, and its promise about the number of sent entries.
#include <support/contraction.hpp>
#include <support/steered_oracle.hpp>

namespace penstock::test {
namespace {

LoadedPlugin plugin() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}

// z with 2 (1 - Phi(z)) = density, from tables.
double deviations(double density) {
  if (density == 0.001) return 3.290526731491926;
  if (density == 0.01) return 2.5758293035489004;
  return density == 0.05 ? 1.959963984540054 : NAN;
}

// sqrt(mean square) z, times the correction that the last step would have needed.
float estimate(SteeredOracle& oracle, const std::vector<float>& x) {
  double squares = 0;
  for (const float value : x) squares += double{value} * double{value};
  double& fitted = oracle.learned["fitted"];
  fitted = x.empty()
               ? 0
               : deviations(oracle.density) * std::sqrt(squares / static_cast<double>(x.size()));
  const double correction = oracle.learned["correction"];
  return static_cast<float>(fitted * (correction > 0 ? correction : 1));
}
void learn(SteeredOracle& oracle, float settled) {
  const double fitted = oracle.learned["fitted"];
  if (fitted > 0 && settled > 0)
    oracle.learned["correction"] = static_cast<float>(settled / fitted);
}

void expect_equals_oracle(double density, int reuse, const std::vector<uint64_t>& numels,
                          uint64_t steps, const Distribution& distribution, uint32_t ranks,
                          const char* value_type = "fp32") {
  expect_equals_steered_oracle(
      plugin(), {{"density", density}, {"reuse_period", reuse}, {"value_type", value_type}},
      steered({.density = density, .reuse_period = reuse}, estimate, learn, value_type), numels,
      steps, distribution, ranks);
}

TEST(GaussianK, EqualsTheOracleOver100Steps) {
  for (const Distribution& distribution : distributions())
    for (const uint32_t ranks : {1, 4})
      expect_equals_oracle(0.05, 1, {300, 0, 1, 57}, 100, distribution, ranks);
}

TEST(GaussianK, ReusingThresholdsEqualsTheOracleOver100Steps) {
  for (const Distribution& distribution : distributions())
    expect_equals_oracle(0.05, 4, {300, 0, 1, 57}, 100, distribution, 2);
}

TEST(GaussianK, NarrowValuesEqualTheOracleAndLeaveTheirRoundingInWork) {
  for (const char* type : {"fp16", "bf16", "int8", "sign"})
    for (const Distribution& distribution : distributions())
      expect_equals_oracle(0.05, 2, {300, 0, 1, 57}, 40, distribution, 3, type);
}

TEST(GaussianK, AwkwardSizesEqualTheOracle) {
  for (const Distribution& distribution : distributions())
    expect_equals_oracle(0.01, 2, awkward_sizes(), 3, distribution, 1);
}

TEST(GaussianK, SixteenMillionElementsEqualTheOracle) {
  expect_large_gradients_equal({.plugin = plugin()}, steered({.density = 0.001}, estimate, learn));
}

TEST(GaussianK, KeepsTheShareWithinATenthOnDistinctMagnitudes) {
  expect_kept_within_a_tenth(plugin(), {});
  expect_kept_within_a_tenth(plugin(), {{"reuse_period", 5}});
}

// If the exact selection has to help, exactly k entries are sent; a threshold gives other numbers.
TEST(GaussianK, LearnsTheThresholdWhateverTheLaw) {
  for (const Distribution& distribution : distributions()) {
    if (distribution.name != "laplace" && distribution.name != "student_t") continue;
    CompressorRig rig({.ranks = 1}, {{20001}}, plugin(), {{"density", 0.05}},
                      load_plugin("memory", "residual"));
    int by_threshold = 0;
    for (uint64_t step = 0; step < 30; ++step) {
      rig.step(draw_gradients(distribution.draw, 1, {20001}, step));
      if (step >= 10 && rig.sent_count(0, 0) != kept_of(20001, 0.05)) ++by_threshold;
    }
    EXPECT_GE(by_threshold, 16) << distribution.name;
  }
}

TEST(GaussianK, NothingIsLostOver100StepsOfEveryKindAndValueType) {
  expect_nothing_is_lost(plugin(), {{"density", 0.05}});
}

TEST(GaussianK, CompensatingInTheSameSweepChangesNoBit) {
  for (const int reuse : {1, 3})
    expect_folding_changes_no_bit(plugin(), {{"density", 0.05}, {"reuse_period", reuse}},
                                  {{30, 40}, {0}, {1}, {70, 70}});
}

TEST(GaussianK, ZerosNeverGo) {
  CompressorRig rig({.ranks = 1}, {{1000}}, plugin(), {{"density", 0.1}, {"value_type", "fp32"}},
                    load_plugin("memory", "residual"));
  std::vector<float> three(1000);
  three[5] = 1;
  three[77] = -2;
  three[999] = 1e-30f;
  EXPECT_EQ(rig.step({{three}})[0], three);
  EXPECT_EQ(rig.sent_count(0, 0), 3u);
  EXPECT_EQ(rig.step({{std::vector<float>(1000)}})[0], std::vector<float>(1000));
  EXPECT_EQ(rig.sent_count(0, 0), 0u);
}

TEST(GaussianK, PayloadsAreInput) {
  CompressorRig rig({.ranks = 2}, {{16}}, plugin(), {{"density", 0.5}});
  expect_sparse_payloads_are_input(rig);
}

TEST(GaussianK, LeavesAtMostTheShareThatWasNotSent) {
  for (const int period : {1, 3})
    expect_contraction({.plugin = plugin(),
                        .options = {{"density", 0.05}, {"reuse_period", period}},
                        .shapes = {{300}, {0}, {1}, {57}, {20, 33}},
                        .rounding = 1e-6});
}

}  // namespace
}  // namespace penstock::test

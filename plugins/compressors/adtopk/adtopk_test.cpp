// ADTopk against full sorts of every lane and of the whole in plain loops, over many steps.
#include "adtopk_testing.hpp"

#include <support/compressor_cases.hpp>
#include <support/conservation.hpp>
#include <support/contraction.hpp>

#include <algorithm>
#include <cmath>

namespace penstock::test {
namespace {

const std::vector<Shape> kShapes{{10, 66}, {0, 3}, {1}, {31}, {7, 12, 3}, {5, 130, 2, 2}, {9, 1}};
const std::vector<Shape> kSmallShapes{{10, 26}, {0, 3}, {1}, {31}, {7, 12, 3}, {9, 1}};

LoadedPlugin adtopk() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}
LoadedPlugin residual() {
  return load_plugin("memory", "residual");
}

TEST(AdTopK, EqualsTheOracleOver100Steps) {
  for (const char* mode : {"plain", "interleaved"})
    for (const Distribution& distribution : distributions())
      for (const uint32_t ranks : {1u, 2u, 3u, 4u, 8u}) {
        if (ranks != 2 && distribution.name != "student_t") continue;
        const uint64_t steps = ranks == 2 && distribution.name == "student_t" ? 100 : 4;
        expect_equals({.plugin = adtopk(),
                       .options = {{"density", 0.05}, {"mode", mode}},
                       .shapes = kShapes,
                       .rig = {.ranks = ranks, .ranks_per_slice = ranks / 2, .check_mass = true},
                       .steps = steps},
                      chosen_by(mode, 5, kShapes), distribution);
      }
}

void expect_equals_by_threshold(const ThresholdSetting& setting, const std::vector<Shape>& shapes,
                                uint32_t ranks, uint64_t steps, const Distribution& distribution,
                                Ways& ways) {
  expect_equals({.plugin = adtopk(),
                 .options = setting.options(),
                 .shapes = shapes,
                 .rig = {.ranks = ranks, .ranks_per_slice = ranks / 2, .check_mass = true},
                 .steps = steps},
                by_threshold(setting, shapes, ways), distribution);
}

TEST(AdTopK, ReusedThresholdsEqualTheOracleOver60Steps) {
  Ways ways;
  for (const ThresholdSetting& setting :
       {ThresholdSetting{5, 4, 5}, {5, 0, 3}, {10, 2, 8}, {10, 4, 5, 40}})
    for (const Distribution& distribution : distributions())
      for (uint32_t ranks = 1; ranks <= 4; ++ranks) {
        const uint64_t steps = ranks == 2 ? 60 : 16;
        expect_equals_by_threshold(setting, kSmallShapes, ranks, steps, distribution, ways);
      }
  for (const int taken : {ways.exact, ways.reused, ways.cut, ways.too_few, ways.longer,
                          ways.shorter, ways.unchanged, ways.by_rows})
    EXPECT_GT(taken, 20) << "a way that the inputs hardly ever lead to";
}

TEST(AdTopK, ReusedThresholdsAtAwkwardSizesEqualTheOracle) {
  Ways ways;
  for (const AwkwardInput& input : awkward_inputs())
    for (uint32_t ranks = 1; ranks <= 4; ++ranks)
      if (ranks == 2 || input.sizes.back() == 1000)
        expect_equals_by_threshold({1, 2, 4}, vectors(input.sizes), ranks, 8, input.distribution,
                                   ways);
  EXPECT_GT(ways.reused, 20);
}

TEST(AdTopK, NarrowValuesWithReusedThresholdsEqualTheOracle) {
  Ways ways;
  for (const char* type : {"fp16", "bf16", "int8"})
    for (const Distribution& distribution : distributions())
      expect_equals_by_threshold({5, 2, 5, 0, type}, kSmallShapes, 3, 12, distribution, ways);
  EXPECT_GT(ways.reused, 20);
}

TEST(AdTopK, SixteenMillionElementsEqualTheOracle) {
  expect_large_gradients_equal(
      {.plugin = adtopk(), .options = {{"density", 0.01}}, .shapes = {kLargeMatrix}},
      chosen_by("interleaved", 1, {kLargeMatrix}));
}

TEST(AdTopK, AwkwardSizesAsRowsColumnsAndVectors) {
  for (const AwkwardInput& input : awkward_inputs())
    for (const uint64_t n : input.sizes) {
      const auto size = static_cast<int64_t>(n);
      const std::vector<Shape> shapes{{size}, {2, size}, {size, 1}, {1, size, 2}};
      // Mode `plain` equals the first step of mode `interleaved`.
      for (const auto& [mode, steps] : {std::pair{"plain", 1}, {"interleaved", 2}})
        if (n < 65537 || steps == 2)
          expect_equals({.plugin = adtopk(),
                         .options = {{"density", 0.01}, {"mode", mode}},
                         .shapes = shapes,
                         .rig = {.ranks = 2, .check_mass = true},
                         .steps = static_cast<uint64_t>(steps)},
                        chosen_by(mode, 1, shapes), input.distribution);
    }
}

TEST(AdTopK, NarrowValuesEqualTheOracleAndLeaveTheirRoundingInWork) {
  for (const char* type : {"fp16", "bf16", "int8", "sign"})
    for (const Distribution& distribution : distributions())
      for (const char* mode : {"plain", "interleaved"})
        expect_equals({.plugin = adtopk(),
                       .options = {{"density", 0.05}, {"mode", mode}, {"value_type", type}},
                       .shapes = kSmallShapes,
                       .rig = {.ranks = 3,
                               .ranks_per_slice = 2,
                               .check_mass = true,
                               .mass_tolerance = 0x1p-23},  // a mean of signs rounds once
                       .steps = 10},
                      chosen_by(mode, 5, kSmallShapes, type), distribution);
}

TEST(AdTopK, GradientsOfAnyScaleArriveAlike) {
  for (const char* mode : {"plain", "interleaved", "threshold"})
    expect_any_scale_arrives_alike(adtopk(), {{"density", 0.1}, {"mode", mode}});
}

TEST(AdTopK, NothingIsLostOver100StepsOfEveryKind) {
  for (const auto& [mode, type] : {std::pair{"plain", "fp32"},
                                   {"threshold", "fp32"},
                                   {"interleaved", "fp16"},
                                   {"threshold", "int8"}})
    for (const Distribution& distribution : distributions()) {
      if (std::string(type) != "fp32" && distribution.name != "laplace") continue;
      CompressorRig rig({.ranks = 3, .check_mass = true, .mass_tolerance = 1e-6}, {{10, 16}, {31}},
                        adtopk(), {{"density", 0.1}, {"mode", mode}, {"value_type", type}},
                        residual());
      expect_conservation(rig, distribution);
    }
}

TEST(AdTopK, EachPhaseHasItsOwnCount) {
  CompressorRig rig({.ranks = 2}, {{20, 30}, {50}, {64, 3, 7, 7}}, adtopk(), {{"density", 0.1}});
  EXPECT_EQ(rig.need(0, 0).period, 2u);
  EXPECT_EQ(rig.need(0, 0).rounds[0].sections[0].capacity, 20u * 3);
  EXPECT_EQ(rig.need(0, 1).rounds[0].sections[0].capacity, 60u);
  EXPECT_EQ(rig.need(1, 0).rounds[0].sections[0].capacity, 5u);
  EXPECT_EQ(rig.need(2, 0).rounds[0].sections[0].capacity, 64u * 49) << "one of three, everywhere";
  EXPECT_EQ(rig.need(2, 1).rounds[0].sections[0].capacity, 940u);
  for (uint32_t phase = 0; phase < 2; ++phase)
    EXPECT_NE(rig.need(0, phase).rounds[0].sections[0].flags & PENSTOCK_SECTION_EXACT, 0u);
  CompressorRig plain({.ranks = 2}, {{20, 30}}, adtopk(), {{"mode", "plain"}});
  EXPECT_EQ(plain.need(0).period, 1u);
}

// The numbers of entries that one rank sends over the steps, for gradient 0 of 4000 entries at 5 %:
// k is 200.
std::vector<uint64_t> counts_in_odd_steps(CompressorRig& rig, uint64_t steps,
                                          const std::function<float(uint64_t)>& scale) {
  std::vector<uint64_t> counts;
  for (uint64_t step = 0; step < steps; ++step) {
    RankTensors gradients = draw_gradients(distributions()[2].draw, 1, {4000}, step);
    for (float& value : gradients[0][0]) value *= scale(step);
    rig.step(gradients);
    if (step % 2 == 1) counts.push_back(rig.sent_count(0, 0));
  }
  return counts;
}

TEST(AdTopK, AReusedThresholdSendsWithinATenthOfTheShareWhateverHappens) {
  const std::function<float(uint64_t)> scales[] = {
      [](uint64_t) { return 1.0f; },
      [](uint64_t step) { return std::pow(0.8f, static_cast<float>(step)); },
      [](uint64_t step) { return std::pow(1.25f, static_cast<float>(step)); },
      [](uint64_t step) { return step % 7 < 3 ? 1000.0f : 1e-3f; }};
  for (const auto& scale : scales) {
    CompressorRig rig({.ranks = 1, .check_mass = true}, {{40, 100}}, adtopk(),
                      {{"density", 0.05}, {"mode", "threshold"}, {"warm_up_steps", 5}}, residual());
    const std::vector<uint64_t> counts = counts_in_odd_steps(rig, 60, scale);
    bool reused = false;
    for (const uint64_t count : counts) {
      EXPECT_GE(count, 180u);
      EXPECT_LE(count, 220u);
      reused |= count != 200;
    }
    EXPECT_TRUE(reused || scale(9) != 1) << "every step selected exactly";
  }
}

TEST(AdTopK, NegativeEntriesPassAReusedThresholdToo) {
  CompressorRig rig(
      {.ranks = 1}, {{2, 50}}, adtopk(),
      {{"density", 0.1}, {"mode", "threshold"}, {"warm_up_steps", 2}, {"reuse_steps", 100}});
  std::vector<float> values(100, 0.01f);
  for (int e = 0; e < 10; ++e) values[static_cast<size_t>(e * 9)] = e % 2 == 0 ? -3.0f : 3.0f;
  Tensors mean;
  for (int step = 0; step < 4; ++step) mean = rig.step({{values}});
  for (size_t e = 0; e < 100; ++e)
    EXPECT_EQ(mean[0][e], std::fabs(values[e]) == 3 ? values[e] : 0.0f) << e;
}

TEST(AdTopK, ThresholdsThatStayServeLongerAndThoseThatJumpLess) {
  const auto interval_after = [](float (*factor)(int)) {
    CompressorRig rig(
        {.ranks = 1}, {{2, 50}}, adtopk(),
        {{"density", 0.1}, {"mode", "threshold"}, {"warm_up_steps", 2}, {"reuse_steps", 9}});
    std::vector<float> values(100);
    for (size_t e = 0; e < 100; ++e) values[e] = static_cast<float>(e + 1);
    std::vector<float> intervals;
    for (int step = 0; step < 60; ++step) {
      std::vector<float> scaled = values;
      for (float& value : scaled) value *= factor(step);
      rig.step({{scaled}});
      intervals.push_back(rig.compressor_state(0, 0, "reuse")[2]);
    }
    EXPECT_EQ(intervals[1], 9.0f);
    return intervals;
  };
  // The threshold that was found in step 1 is due after ten steps; its interval grows by two if
  // nothing has moved.
  const std::vector<float> still = interval_after([](int) { return 1.0f; });
  EXPECT_EQ(still[9], 9.0f);
  EXPECT_EQ(still[11], 11.0f);
  EXPECT_EQ(still[23], 13.0f);
  // A change of 7 % lies between half the tolerance and the whole tolerance.
  EXPECT_EQ(interval_after([](int step) { return step < 11 ? 1.0f : 1.07f; })[11], 10.0f);
  // Growth by a sixth is more than the tolerance, by a half more than twice. Never below five.
  EXPECT_EQ(interval_after([](int step) { return step < 11 ? 1.0f : 1.17f; })[11], 8.0f);
  EXPECT_EQ(interval_after([](int step) { return step < 11 ? 1.0f : 1.5f; })[11], 7.0f);
  EXPECT_EQ(interval_after([](int step) { return std::pow(1.3f, static_cast<float>(step)); })[59],
            5.0f);
}

TEST(AdTopK, LateInTheTrainingASettledGradientGoesRowByRow) {
  CompressorRig rig({.ranks = 1}, {{5, 20}}, adtopk(),
                    {{"density", 0.1},
                     {"mode", "threshold"},
                     {"warm_up_steps", 2},
                     {"reuse_steps", 3},
                     {"total_steps", 20}});
  std::vector<float> values(100);
  for (size_t e = 0; e < 100; ++e) values[e] = static_cast<float>(e + 1);
  Tensors mean;
  for (int step = 0; step < 20; ++step) {
    mean = rig.step({{values}});
    if (step % 2 == 0) continue;
    EXPECT_EQ(mean[0][19] != 0, step > 15) << "row 0 counts only row by row, step " << step;
  }
}

TEST(AdTopK, PayloadsAreInput) {
  CompressorRig rig({.ranks = 2}, {{4, 4}}, adtopk(), {{"density", 0.5}});
  expect_sparse_payloads_are_input(rig);
}

TEST(AdTopK, EveryCodePathSendsTheSame) {
  expect_one_result_wherever_it_runs(adtopk(), {}, {{210, 1000}, {5, 1000, 14}});
}

TEST(AdTopK, RefusesMoreEntriesThanIndicesCanName) {
  expect_huge_gradients_are_refused(adtopk());
}

TEST(AdTopK, LeavesAtMostTheShareThatWasNotChosenInEveryMode) {
  // A selection by rows sends an equal share of every row; a selection over the whole, or by a
  // threshold, sends the largest entries.
  for (const char* mode : {"plain", "interleaved", "threshold"})
    expect_contraction(
        {.plugin = adtopk(),
         .options = {{"density", 0.1}, {"mode", mode}, {"warm_up_steps", 3}, {"reuse_steps", 2}},
         .shapes = kShapes,
         .steps = 12,
         .rounding = 1e-6});
}

}  // namespace
}  // namespace penstock::test

// ADTopk against full sorts of every lane and of the whole in plain loops, over many steps.
#include <support/conservation.hpp>
#include <support/sparse_oracle.hpp>

#include <algorithm>
#include <cmath>

namespace penstock::test {
namespace {

const std::vector<Shape> kShapes{{10, 66}, {0, 3}, {1}, {31}, {7, 12, 3}, {5, 130, 2, 2}, {9, 1}};
const std::vector<uint64_t> kNumels{660, 0, 1, 31, 252, 2600, 9};

LoadedPlugin adtopk() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}
LoadedPlugin residual() {
  return load_plugin("memory", "residual");
}

// max(1, floor(n * percent / 100))
uint64_t kept_of_lane(uint64_t n, uint64_t percent) {
  return std::min(n, std::max<uint64_t>(1, n * percent / 100));
}

// For every index of the other axes the largest along axis 1; a vector is one lane.
std::vector<uint32_t> largest_along(const std::vector<float>& x, const Shape& shape,
                                    uint64_t percent) {
  if (x.empty()) return {};
  const uint64_t blocks = shape.size() < 2 ? 1 : static_cast<uint64_t>(shape[0]);
  const uint64_t length = shape.size() < 2 ? x.size() : static_cast<uint64_t>(shape[1]);
  const uint64_t lanes = x.size() / (blocks * length);
  std::vector<uint32_t> chosen;
  for (uint64_t block = 0; block < blocks; ++block)
    for (uint64_t lane = 0; lane < lanes; ++lane) {
      std::vector<float> values;
      for (uint64_t i = 0; i < length; ++i)
        values.push_back(x[(block * length + i) * lanes + lane]);
      for (const uint32_t i : largest(values, kept_of_lane(length, percent)))
        chosen.push_back(static_cast<uint32_t>((block * length + i) * lanes + lane));
    }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

struct Oracle {
  uint64_t percent;
  bool interleaved;
  RankTensors kept;

  Tensors step(const RankTensors& gradients, uint64_t index) {
    if (kept.empty()) {
      kept = gradients;
      for (auto& of_rank : kept)
        for (auto& of_item : of_rank) of_item.assign(of_item.size(), 0.0f);
    }
    Tensors mean;
    for (size_t i = 0; i < kept[0].size(); ++i) {
      std::vector<float>& total = mean.emplace_back(kept[0][i].size(), 0.0f);
      for (size_t r = 0; r < kept.size(); ++r) {
        std::vector<float>& work = kept[r][i];
        for (size_t e = 0; e < work.size(); ++e) work[e] += gradients[r][i][e];
        const bool rows = !interleaved || index % 2 == 0;
        send(rows ? largest_along(work, kShapes[i], percent)
                  : largest(work, kept_of_lane(work.size(), percent)),
             work, total);
      }
      for (float& value : total) value /= static_cast<float>(kept.size());
    }
    return mean;
  }
};

TEST(AdTopK, EqualsTheOracleOver100Steps) {
  for (const char* mode : {"plain", "interleaved"})
    for (const Distribution& distribution : distributions())
      for (const uint32_t ranks : {1u, 2u, 3u, 4u, 8u}) {
        if (ranks != 2 && distribution.name != "student_t") continue;
        const uint64_t steps = ranks == 2 && distribution.name == "student_t" ? 100 : 4;
        CompressorRig rig({.ranks = ranks, .ranks_per_slice = ranks / 2, .check_mass = true},
                          kShapes, adtopk(), {{"density", 0.05}, {"mode", mode}}, residual());
        Oracle oracle{5, std::string(mode) == "interleaved", {}};
        for (uint64_t step = 0; step < steps; ++step) {
          const RankTensors gradients = draw_gradients(distribution.draw, ranks, kNumels, step);
          ASSERT_EQ(rig.step(gradients), oracle.step(gradients, step))
              << mode << ", " << distribution.name << ", step " << step;
        }
        for (uint32_t r = 0; r < ranks; ++r)
          for (uint64_t i = 0; i < kNumels.size(); ++i)
            ASSERT_EQ(rig.work(r, i), oracle.kept[r][i]);
      }
}

TEST(AdTopK, AwkwardSizesAsRowsColumnsAndVectors) {
  for (const uint64_t n : awkward_sizes()) {
    const auto size = static_cast<int64_t>(n);
    const std::vector<Shape> shapes{{size}, {2, size}, {size, 1}, {1, size, 2}};
    const std::vector<uint64_t> numels{n, 2 * n, n, 2 * n};
    CompressorRig rig({.ranks = 2, .check_mass = true}, shapes, adtopk(),
                      {{"density", 0.01}, {"mode", "plain"}}, residual());
    const RankTensors gradients = draw_gradients(heavy_tailed, 2, numels, n);
    const Tensors mean = rig.step(gradients);
    for (size_t i = 0; i < shapes.size(); ++i) {
      std::vector<float> total(numels[i]);
      for (uint32_t r = 0; r < 2; ++r) {
        std::vector<float> work = gradients[r][i];
        send(largest_along(work, shapes[i], 1), work, total);
      }
      for (float& value : total) value /= 2;
      ASSERT_EQ(mean[i], total) << n << ", shape " << i;
    }
  }
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

// What one rank sends over the steps, gradient 0 of 4000 entries at 5 %: k is 200.
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
  // The threshold found in step 1 is due again after ten steps: by two where nothing moved.
  const std::vector<float> still = interval_after([](int) { return 1.0f; });
  EXPECT_EQ(still[9], 9.0f);
  EXPECT_EQ(still[11], 11.0f);
  EXPECT_EQ(still[23], 13.0f);
  // A change of 7 % lies between half the tolerance and all of it.
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
  const RankTensors gradients = draw_gradients(heavy_tailed, 2, {70000, 70000}, 5);
  Tensors first;
  for (const char* path : {"portable", "avx2", "avx512"}) {
    set_code_path(path);
    CompressorRig rig({.ranks = 2}, {{70, 1000}, {5, 1000, 14}}, adtopk());
    const Tensors mean = rig.step(gradients);
    if (first.empty()) first = mean;
    EXPECT_EQ(mean, first) << path;
  }
  set_code_path("");
}

TEST(AdTopK, RefusesMoreEntriesThanIndicesCanName) {
  const LoadedPlugin plugin = adtopk();
  const CompressorInstance instance(plugin.compressor(), *plugin.module);
  penstock_item item{};
  item.struct_size = sizeof item;
  item.name = {"huge", 4};
  item.numel = uint64_t{1} << 32;
  penstock_compressor_need need{};
  need.struct_size = sizeof need;
  const penstock_item* items[] = {&item};
  penstock_compressor_need* needs[] = {&need};
  EXPECT_TRUE(fails_with(instance.table().plan(instance.self(), 0, 2, items, 1, needs),
                         PENSTOCK_INVALID_ARGUMENT, "'huge' has 4294967296 entries"));
}

}  // namespace
}  // namespace penstock::test

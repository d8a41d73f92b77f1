// A fixed threshold against plain loops: which entries go, what waits, and the units it is in.
#include <support/steered_oracle.hpp>

namespace penstock::test {
namespace {

LoadedPlugin plugin() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}
LoadedPlugin residual() {
  return load_plugin("memory", "residual");
}

// All that reach the threshold; of more than `most`, the largest.
std::vector<uint32_t> chosen(const std::vector<float>& x, float threshold, uint64_t most) {
  std::vector<float> only(x.size());
  uint64_t passed = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] == 0 || std::fabs(x[i]) < threshold) continue;
    only[i] = x[i];
    ++passed;
  }
  return largest(only, std::min(passed, most));
}

void expect_equals_oracle(float threshold, double capacity, const std::vector<uint64_t>& numels,
                          uint64_t steps, const Distribution& distribution, uint32_t ranks) {
  std::vector<Shape> shapes;
  for (const uint64_t numel : numels) shapes.push_back({static_cast<int64_t>(numel)});
  CompressorRig rig({.ranks = ranks, .ranks_per_slice = ranks / 2, .check_mass = true}, shapes,
                    plugin(), {{"threshold", double{threshold}}, {"capacity", capacity}},
                    residual());
  RankTensors kept(ranks);
  for (auto& of_rank : kept)
    for (const uint64_t numel : numels) of_rank.emplace_back(numel);
  for (uint64_t step = 0; step < steps; ++step) {
    const RankTensors gradients = draw_gradients(distribution.draw, ranks, numels, step);
    Tensors expected;
    for (uint64_t i = 0; i < numels.size(); ++i) {
      std::vector<float>& total = expected.emplace_back(numels[i]);
      for (uint32_t r = 0; r < ranks; ++r) {
        std::vector<float>& work = kept[r][i];
        for (uint64_t e = 0; e < numels[i]; ++e) work[e] += gradients[r][i][e];
        const uint64_t most = numels[i] == 0 ? 0 : kept_of(numels[i], capacity);
        send(chosen(work, threshold, most), work, total);
      }
      for (float& value : total) value /= static_cast<float>(ranks);
    }
    ASSERT_EQ(rig.step(gradients), expected) << distribution.name << ", step " << step;
    for (uint32_t r = 0; r < ranks; ++r)
      for (uint64_t i = 0; i < numels.size(); ++i) ASSERT_EQ(rig.work(r, i), kept[r][i]);
  }
}

TEST(Threshold, EqualsTheOracleOver100Steps) {
  for (const Distribution& distribution : distributions())
    for (const uint32_t ranks : {1, 4})
      expect_equals_oracle(2.5f, 0.1, {160, 0, 1, 31, 63}, 100, distribution, ranks);
}

TEST(Threshold, AwkwardSizesEqualTheOracle) {
  for (const Distribution& distribution : distributions())
    for (const double capacity : {0.01, 1.0})
      expect_equals_oracle(1.0f, capacity, awkward_sizes(), 2, distribution, 1);
}

TEST(Threshold, BeyondTheCapacityTheLargestGoAndTiesKeepTheLowerIndex) {
  CompressorRig rig({.ranks = 1}, {{8}}, plugin(), {{"threshold", 1}, {"capacity", 0.375}},
                    residual());
  EXPECT_EQ(rig.step({{{2, -3, 0.5, 2, -2, 2, 0, 1}}}), (Tensors{{2, -3, 0, 2, 0, 0, 0, 0}}));
  EXPECT_EQ(rig.work(0, 0), (std::vector<float>{0, 0, 0.5, 0, -2, 2, 0, 1}));
}

TEST(Threshold, IsInUnitsOfTheTrueGradientWhateverTheLossScale) {
  for (const bool with_memory : {true, false}) {
    CompressorRig rig({.ranks = 1}, {{4}}, plugin(), {{"threshold", 1}, {"capacity", 1}},
                      with_memory ? std::optional(residual()) : std::nullopt);
    for (const double scale : {1024.0, 0.5})
      EXPECT_EQ(rig.step({{{2, 0.5, -1, 0.75}}}, {.grad_scale = scale})[0][0], 2) << scale;
    EXPECT_EQ(rig.sent_count(0, 0), with_memory ? 4u : 2u) << "0.5 and 0.75 have piled up";
  }
}

TEST(Threshold, WhereNothingPassesNothingIsSent) {
  CompressorRig rig({.ranks = 2}, {{100}}, plugin(), {{"threshold", 10}}, residual());
  const std::vector<float> small(100, 0.25f);
  EXPECT_EQ(rig.step({{small}, {small}}), (Tensors{std::vector<float>(100)}));
  EXPECT_EQ(rig.sent_count(0, 0), 0u);
}

TEST(Threshold, NothingIsLostOver100StepsOfEveryKindAndValueType) {
  expect_nothing_is_lost(plugin(), {{"threshold", 1.5}});
}

TEST(Threshold, PayloadsAreInput) {
  CompressorRig rig({.ranks = 2}, {{16}}, plugin(), {{"capacity", 0.5}});
  expect_sparse_payloads_are_input(rig);
}

TEST(Threshold, NarrowPayloadsAreInput) {
  for (const char* type : {"fp16", "bf16", "int8"}) {
    CompressorRig rig({.ranks = 2}, {{16}}, plugin(), {{"capacity", 0.5}, {"value_type", type}});
    expect_narrow_payloads_are_input(rig);
  }
}

}  // namespace
}  // namespace penstock::test

// Signum's average against its recurrence in plain loops, with votes and with whole gradients.
#include <testing/data.hpp>
#include <testing/gtest.hpp>
#include <testing/rig.hpp>

#include <cmath>

namespace penstock::test {
namespace {

using Numels = std::vector<uint64_t>;
const Numels kNumels{160, 0, 1, 31, 64};

LoadedPlugin momentum() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}
LoadedPlugin compressor(const char* name) {
  return load_plugin("compressor", name);
}

std::vector<Shape> shapes(const Numels& numels = kNumels) {
  std::vector<Shape> all;
  for (const uint64_t n : numels) all.push_back({static_cast<int64_t>(n)});
  return all;
}

RankTensors zeros(uint32_t ranks, const Numels& numels = kNumels) {
  RankTensors all(ranks);
  for (auto& of_rank : all)
    for (const uint64_t n : numels) of_rank.emplace_back(n);
  return all;
}

void average(RankTensors& averages, const RankTensors& gradients, float beta, float rest) {
  for (size_t r = 0; r < averages.size(); ++r)
    for (size_t i = 0; i < averages[r].size(); ++i)
      for (size_t e = 0; e < averages[r][i].size(); ++e)
        averages[r][i][e] = beta * averages[r][i][e] + rest * gradients[r][i][e];
}

TEST(Momentum, WithSignsItIsSignumWithMajorityVote) {
  for (const Distribution& distribution : distributions())
    for (const uint32_t ranks : {1u, 2u, 3u, 4u, 8u}) {
      CompressorRig rig({.ranks = ranks}, shapes(), compressor("signsgd"), {}, momentum());
      RankTensors averages = zeros(ranks);
      for (uint64_t step = 0; step < 3; ++step) {
        const RankTensors gradients = draw_gradients(distribution.draw, ranks, kNumels, step);
        average(averages, gradients, 0.9f, static_cast<float>(1 - 0.9));
        const double scale = distribution.name == "subnormal" || step % 2 == 0 ? 1 : 4096;
        const Tensors vote = rig.step(gradients, {.grad_scale = scale});
        for (size_t i = 0; i < kNumels.size(); ++i)
          for (size_t e = 0; e < kNumels[i]; ++e) {
            int sum = 0;
            for (uint32_t r = 0; r < ranks; ++r)
              sum += (averages[r][i][e] > 0) - (averages[r][i][e] < 0);
            ASSERT_EQ(vote[i][e], static_cast<float>((sum > 0) - (sum < 0))) << distribution.name;
          }
      }
      for (uint32_t r = 0; r < ranks; ++r)
        for (size_t i = 0; i < kNumels.size(); ++i)
          ASSERT_EQ(rig.memory_state(r, i, "momentum"), averages[r][i]) << distribution.name;
    }
}

TEST(Momentum, OfGradientsSentWholeTheMeanIsAveraged) {
  const Numels& numels = awkward_sizes();
  CompressorRig rig({.ranks = 3}, shapes(numels), compressor("none"), {}, momentum(),
                    {{"momentum", 0.75}});
  RankTensors averages = zeros(3, numels);
  for (uint64_t step = 0; step < 4; ++step) {
    const RankTensors gradients = draw_gradients(heavy_tailed, 3, numels, step);
    average(averages, gradients, 0.75f, 0.25f);
    const Tensors mean = rig.step(gradients, {.grad_scale = step % 2 == 0 ? 1.0 : 1024.0});
    for (size_t i = 0; i < numels.size(); ++i)
      for (size_t e = 0; e < numels[i]; ++e)
        ASSERT_EQ(mean[i][e], (averages[0][i][e] + averages[1][i][e] + averages[2][i][e]) / 3);
  }
}

TEST(Momentum, ConstantGradientsAreTheirOwnAverage) {
  CompressorRig rig({.ranks = 2}, {{3}}, compressor("none"), {}, momentum());
  Tensors mean;
  for (int step = 0; step < 200; ++step) mean = rig.step(RankTensors(2, Tensors{{1, -2, 0}}));
  // 0.9^200 is below 1e-9; each step rounds by at most 2^-23, and errors fade with 1 / (1 - 0.9).
  EXPECT_NEAR(mean[0][0], 1, 10 * 0x1p-23);
  EXPECT_NEAR(mean[0][1], -2, 20 * 0x1p-23);
  EXPECT_EQ(mean[0][2], 0.0f);
}

TEST(Momentum, MomentumZeroIsTheGradient) {
  CompressorRig rig({.ranks = 2}, {{4}}, compressor("none"), {}, momentum(), {{"momentum", 0}});
  rig.step({{{9, 9, 9, 9}}, {{9, 9, 9, 9}}});
  EXPECT_EQ(rig.step({{{1, 2, 3, 4}}, {{3, 2, 1, 0}}}), (Tensors{{2, 2, 2, 2}}));
  EXPECT_EQ(rig.memory_need(0).flags, 0u);
}

TEST(Momentum, ARankWithBadGradientsOrWithoutDataKeepsItsAverage) {
  CompressorRig rig({.ranks = 3}, {{2}}, compressor("signsgd"), {}, momentum(),
                    {{"momentum", 0.5}});
  rig.step({{{2, 2}}, {{4, 4}}, {{8, 8}}});
  rig.step({{{2, 0}}, {{0, 0}}, {{0, 8}}}, {.void_rank = 1});
  EXPECT_EQ(rig.memory_state(0, 0, "momentum"), (std::vector<float>{1.5, 0.5}));
  EXPECT_EQ(rig.memory_state(1, 0, "momentum"), (std::vector<float>{2, 2}));
  rig.step({{{0, 0}}, {{0, 0}}, {{0, 0}}}, {.joined = {2}});
  EXPECT_EQ(rig.memory_state(2, 0, "momentum"), (std::vector<float>{2, 6}));
}

TEST(Momentum, OfAForgottenStepNothingIsInTheAverage) {
  CompressorRig rig({.ranks = 2}, {{2}}, compressor("none"), {}, momentum());
  CompressorRig other({.ranks = 2}, {{2}}, compressor("none"), {}, momentum());
  const RankTensors first{{{1, 2}}, {{3, 4}}}, second{{{-1, 0}}, {{1, 0}}};
  rig.step(first, {.forgotten = true});
  EXPECT_EQ(rig.step(second), other.step(second));
}

TEST(Momentum, HasNothingToTakeBack) {
  EXPECT_EQ(momentum().memory().give_back, nullptr);
}

TEST(Momentum, DrainEndsTheAverageAndHandsOverNothing) {
  CompressorRig rig({.ranks = 1}, {{2}}, compressor("none"), {}, momentum());
  rig.step({{{1, -1}}});
  EXPECT_EQ(rig.drain(0, 0), (std::vector<float>{0, 0}));
  EXPECT_EQ(rig.memory_state(0, 0, "momentum"), (std::vector<float>{0, 0}));
}

TEST(Momentum, SaysThatItOwnsTheMomentumAndKeepsNoDebt) {
  CompressorRig rig({}, {{6}}, compressor("signsgd"), {}, momentum());
  const penstock_memory_need& need = rig.memory_need(0);
  EXPECT_EQ(need.flags, uint32_t{PENSTOCK_MEMORY_OWNS_MOMENTUM});
  EXPECT_EQ(need.work_is, uint32_t{PENSTOCK_WORK_IS_SCRATCH});
  EXPECT_EQ(need.form, uint32_t{PENSTOCK_FORM_NONE});
  EXPECT_EQ(need.n_states, 1u);
}

}  // namespace
}  // namespace penstock::test

// Power-SGD against Algorithm 1 of its paper in double, and its behaviour at the edges.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "support/compressor_cases.hpp"
#include "support/low_rank_cases.hpp"
#include "support/narrow_factors.hpp"

namespace penstock::test {
namespace {

using oracle::Matrix;

LoadedPlugin powersgd() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}
LoadedPlugin residual() {
  return load_plugin("memory", "residual");
}

// Algorithm 1, error feedback with the local form, for one matrix of all ranks.
struct Oracle {
  Oracle(uint32_t ranks, uint64_t rows, uint64_t cols, uint64_t rank, uint64_t gradient)
      : error(ranks, Matrix(rows, cols)), q(oracle::normals(1, gradient, 1, cols, rank)) {}

  Matrix step(uint64_t, const std::vector<Matrix>& gradients) {
    q = oracle::orthonormal(q);
    const uint64_t ranks = gradients.size();
    Matrix left(error[0].rows, q.cols), right(error[0].cols, q.cols);
    for (uint64_t r = 0; r < ranks; ++r) {
      error[r] = oracle::combined(error[r], 1, gradients[r]);
      left = oracle::combined(left, 1, wire.sent(oracle::product(error[r], q), ranks));
    }
    const Matrix p = oracle::orthonormal(wire.summed(left));
    for (uint64_t r = 0; r < ranks; ++r) {
      const Matrix own = wire.sent(oracle::product(oracle::transposed(error[r]), p), ranks);
      right = oracle::combined(right, 1, own);
      error[r] = oracle::combined(error[r], -1, oracle::product(p, oracle::transposed(own)));
    }
    q = wire.summed(right);
    Matrix mean = oracle::product(p, oracle::transposed(q));
    for (double& value : mean.entries) value /= static_cast<double>(ranks);
    return mean;
  }
  std::vector<Matrix> error;
  Matrix q;
  low_rank::OracleWire wire;
};

TEST(PowerSgd, FollowsThePaperOverManySteps) {
  low_rank::expect_follows_over_many_steps<Oracle>(powersgd(), 8);
}

TEST(PowerSgd, FollowsThePaperOnEveryDistribution) {
  low_rank::expect_follows_on_every_distribution<Oracle>(powersgd(), 1);
}

TEST(PowerSgd, SixteenMillionElementsEqualTheOracle) {
  low_rank::expect_large_matrices_follow<Oracle>(powersgd());
}

TEST(PowerSgd, WhatIsSentAndWhatIsKeptAddUpToAllGradientsOver100Steps) {
  const std::vector<Shape> shapes = {{20, 33}, {40, 3, 3}};  // a dense one keeps nothing
  const uint32_t ranks = 3;
  CompressorRig rig({.ranks = ranks}, shapes, powersgd(),
                    {{"rank", 2}, {"minimum_compression_rate", 1.0}}, residual());
  low_rank::expect_balance(rig, shapes, ranks);
}

TEST(PowerSgd, CodePathsAndThreadsDoNotShow) {
  expect_one_result_wherever_it_runs(powersgd(), {{"rank", 3}}, {{517, 1103}, {9, 7}});
}

TEST(PowerSgd, FullRankWithRateZeroIsDense) {
  const std::vector<Shape> shapes = {{6, 11}, {11, 6}, {8, 8}, {1, 5}, {5, 1}, {1, 1}, {4, 2, 3}};
  for (const uint32_t ranks : {1u, 2u, 4u}) {
    CompressorRig rig({.ranks = ranks}, shapes, powersgd(),
                      {{"rank", 32}, {"minimum_compression_rate", 0.0}}, residual());
    for (uint64_t step = 0; step < 5; ++step) {
      const RankTensors gradients =
          draw_gradients(heavy_tailed, ranks, {66, 66, 64, 5, 5, 1, 24}, step);
      const Tensors mean = rig.step(gradients);
      for (uint64_t i = 0; i < shapes.size(); ++i)
        low_rank::expect_mean(mean, gradients, i, 2e-5, "step " + std::to_string(step));
    }
  }
}

TEST(PowerSgd, FactorsOnlyWhatItMakesSmallerByTheAskedRate) {
  // Factors of rank 4 have 4 (rows + cols) elements; at rate 2 that must be below half.
  const std::vector<Shape> shapes = {{16, 16}, {17, 17}, {16, 15}, {1000}, {0, 5}, {}, {300, 1}};
  CompressorRig rig({.ranks = 2}, shapes, powersgd());
  const std::vector<bool> factored = {false, true, false, false, false, false, false};
  for (uint64_t i = 0; i < shapes.size(); ++i) {
    const PlannedNeed& need = rig.need(i);
    ASSERT_EQ(need.rounds.size(), factored[i] ? 2u : 1u) << "item " << i;
    EXPECT_EQ(need.states.size(), factored[i] ? 2u : 0u);
    EXPECT_EQ((need.flags & PENSTOCK_NEED_LOSSLESS) != 0, !factored[i]);
    for (const PlannedRound& round : need.rounds) {
      EXPECT_EQ(round.c.combine, uint32_t{PENSTOCK_COMBINE_SUM});
      EXPECT_EQ((round.c.flags & PENSTOCK_ROUND_SAME_BITS) != 0, factored[i]);
    }
  }
  EXPECT_EQ(rig.need(1).rounds[0].sections[0].capacity, 17u * 4);
  EXPECT_EQ(rig.need(3).rounds[0].sections[0].capacity, 1000u);
}

TEST(PowerSgd, AllZeroGradientsGiveZerosAndTheMethodRecovers) {
  const std::vector<Shape> shapes = {{30, 40}};
  CompressorRig rig({.ranks = 2}, shapes, powersgd(), {}, residual());
  const RankTensors zeros(2, Tensors{std::vector<float>(1200, 0.0f)});
  for (int step = 0; step < 3; ++step) EXPECT_EQ(rig.step(zeros)[0], zeros[0][0]);
  const RankTensors gradients(2, Tensors{oracle::layered_gradient(30, 40, 3, 0, 0)});
  Tensors mean;
  for (int step = 0; step < 4; ++step) mean = rig.step(gradients);
  // A few steps approximate a gradient of three strong directions almost fully.
  EXPECT_LT(low_rank::squared_error(mean[0], gradients[0][0]), 0.02);
  const std::vector<float> q = rig.compressor_state(0, 0, "q");
  EXPECT_EQ(rig.step(zeros)[0].size(), 1200u);  // residuals are sent now
  EXPECT_NE(q, std::vector<float>(q.size(), 0.0f));
}

TEST(PowerSgd, ASumOfZerosKeepsTheFactors) {
  low_rank::expect_zeros_keep_factors(powersgd(), {"q"});
}

TEST(PowerSgd, GradientsThatGoDenseAreTakenOutWhole) {
  low_rank::expect_dense_is_taken_out(powersgd());
}

TEST(PowerSgd, AGradientOfLowRankLeavesNoDeadColumnBehind) {
  const uint64_t rows = 24, cols = 50, rank = 4;
  CompressorRig rig({.ranks = 2}, {{rows, cols}}, powersgd(), {}, residual());
  const std::vector<float> thin = low_rank::thin_matrix(rows, cols);
  std::vector<float> before;
  for (int step = 0; step < 3; ++step) {
    const Tensors mean = rig.step(RankTensors(2, Tensors{thin}));
    for (uint64_t e = 0; e < thin.size(); ++e) ASSERT_NEAR(mean[0][e], thin[e], 1e-5) << step;
    const std::vector<float> q = rig.compressor_state(0, 0, "q");
    low_rank::expect_orthonormal(q, rank, "q in step " + std::to_string(step));
    double change = 0;  // of the drawn values; the rest stays but for rounding
    for (uint64_t e = 0; e < before.size(); ++e)
      change = std::max(change, std::fabs(double{q[e]} - before[e]));
    EXPECT_TRUE(step == 0 || change > 0.01) << change;
    before = q;
  }
}

TEST(PowerSgd, ColdStartDrawsAnotherFactorEveryStep) {
  const std::vector<Shape> shapes = {{40, 40}};
  CompressorRig rig({.ranks = 2}, shapes, powersgd(), {{"warm_start", false}, {"rank", 2}});
  EXPECT_EQ(rig.need(0).states.size(), 1u);
  const RankTensors gradients = draw_gradients(heavy_tailed, 2, {1600}, 0);
  const Tensors first = rig.step(gradients), second = rig.step(gradients);
  EXPECT_NE(first[0], second[0]);
}

TEST(PowerSgd, RanksWithoutDataCountAsZeros) {
  const std::vector<Shape> shapes = {{30, 30}, {7}};
  CompressorRig with({.ranks = 3}, shapes, powersgd(), {}, residual());
  CompressorRig alone({.ranks = 1}, shapes, powersgd(), {}, residual());
  const RankTensors gradients = oracle::layered_gradients(shapes, 3, 0);
  StepSettings settings;
  settings.joined = {1, 2};
  const Tensors mean = with.step(gradients, settings);
  const Tensors expected = alone.step({gradients[0]});
  for (uint64_t i = 0; i < 2; ++i)
    for (uint64_t e = 0; e < mean[i].size(); ++e)
      ASSERT_NEAR(3 * mean[i][e], expected[i][e], 1e-6 * (1 + std::fabs(expected[i][e])));
}

TEST(PowerSgd, SumsThatOverflowLeaveUsableFactors) {
  const uint64_t n = 40 * 40;
  CompressorRig rig({.ranks = 2}, {{40, 40}}, powersgd(), {}, residual());
  const float huge = std::numeric_limits<float>::max();
  rig.step(RankTensors(2, Tensors{std::vector<float>(n, huge)}));
  const std::vector<float> q = rig.compressor_state(1, 0, "q");
  for (const float value : q) ASSERT_TRUE(std::isfinite(value));
}

TEST(PowerSgd, ASumOfTheWrongSizeIsRefusedAndChangesNoState) {
  CompressorRig rig({.ranks = 2}, {{40, 40}, {5}}, powersgd());
  rig.step(draw_gradients(heavy_tailed, 2, {1600, 5}, 0));
  const std::vector<float> p = rig.compressor_state(0, 0, "p");
  std::vector<const penstock_item*> items = {rig.compressor_item(0, 0), rig.compressor_item(0, 1)};
  const PayloadPointer good = dense_payload(std::vector<float>(160, 1.0f), -1);
  const PayloadPointer short_one = dense_payload(std::vector<float>(4, 1.0f), -1);
  low_rank::expect_sum_refused(rig, items, {good->c(), short_one->c()}, "gradient1");
  EXPECT_EQ(rig.compressor_state(0, 0, "p"), p);
}

TEST(PowerSgd, CompensatingInTheSameSweepChangesNoBit) {
  expect_folding_changes_no_bit(powersgd(), {{"rank", 3}}, {{37, 20}, {30}, {64, 64}}, 1e-6);
}

TEST(PowerSgd, SendsAProjectionOfEachRanksMatrix) {
  low_rank::expect_sends_projections(powersgd());
}

TEST(PowerSgd, FactorsOf16BitsFollowThePaperWithRoundedFactors) {
  low_rank::expect_narrow_factors_follow<Oracle, 0>(powersgd());
  low_rank::expect_narrow_factors_follow<Oracle, 1>(powersgd());
}

TEST(PowerSgd, FactorsOf16BitsLoseNothingThatARankRoundsAway) {
  low_rank::expect_thin_matrices_to_the_bit(powersgd(), {1, 40}, 1);
  low_rank::expect_narrow_balance(powersgd());
}

TEST(PowerSgd, FactorsOf16BitsTakeHalfTheBytes) {
  low_rank::expect_factors_take_half_the_bytes(powersgd());
  low_rank::expect_wide_sums_are_refused(powersgd());
}

TEST(PowerSgd, FactorsOf16BitsAreTheSameWhereverTheyAreMade) {
  low_rank::expect_narrow_factors_are_the_same_everywhere(powersgd());
}

}  // namespace
}  // namespace penstock::test

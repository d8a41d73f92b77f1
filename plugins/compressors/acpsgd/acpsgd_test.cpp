// ACP-SGD against its two alternating projections in double, and its behaviour at the edges.
#include <gtest/gtest.h>

#include <cstring>

#include "support/compressor_cases.hpp"
#include "support/low_rank_cases.hpp"
#include "support/narrow_factors.hpp"

namespace penstock::test {
namespace {

using oracle::Matrix;

LoadedPlugin acpsgd() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}
LoadedPlugin residual() {
  return load_plugin("memory", "residual");
}

// One matrix of all ranks; the factors alternate.
struct Oracle {
  Oracle(uint32_t ranks, uint64_t rows, uint64_t cols, uint64_t rank, uint64_t gradient)
      : error(ranks, Matrix(rows, cols)), right(oracle::normals(1, gradient, 1, cols, rank)) {}

  Matrix step(uint64_t index, const std::vector<Matrix>& gradients) {
    const bool sends_left = index % 2 == 0;
    Matrix& known = sends_left ? right : left;
    Matrix& sent = sends_left ? left : right;
    known = oracle::orthonormal(known);
    sent = Matrix(sends_left ? error[0].rows : error[0].cols, known.cols);
    for (uint64_t r = 0; r < gradients.size(); ++r) {
      error[r] = oracle::combined(error[r], 1, gradients[r]);
      const Matrix own =
          wire.sent(oracle::product(sends_left ? error[r] : oracle::transposed(error[r]), known),
                    gradients.size());
      sent = oracle::combined(sent, 1, own);
      error[r] = oracle::combined(error[r], -1, expanded(sends_left, own, known));
    }
    sent = wire.summed(sent);
    Matrix mean = expanded(sends_left, sent, known);
    for (double& value : mean.entries) value /= static_cast<double>(gradients.size());
    return mean;
  }
  static Matrix expanded(bool sends_left, const Matrix& sent, const Matrix& known) {
    return sends_left ? oracle::product(sent, oracle::transposed(known))
                      : oracle::product(known, oracle::transposed(sent));
  }
  std::vector<Matrix> error;
  Matrix left, right;
  low_rank::OracleWire wire;
};

TEST(AcpSgd, FollowsThePaperOverManySteps) {
  low_rank::expect_follows_over_many_steps<Oracle>(acpsgd(), 9);
}

TEST(AcpSgd, CodePathsAndThreadsDoNotShow) {
  expect_one_result_wherever_it_runs(acpsgd(), {{"rank", 3}}, {{517, 1103}, {9, 7}});
}

TEST(AcpSgd, FollowsThePaperOnEveryDistribution) {
  low_rank::expect_follows_on_every_distribution<Oracle>(acpsgd(), 2);
}

TEST(AcpSgd, SixteenMillionElementsEqualTheOracle) {
  low_rank::expect_large_matrices_follow<Oracle>(acpsgd());
}

TEST(AcpSgd, WhatIsSentAndWhatIsKeptAddUpToAllGradientsOver100Steps) {
  const std::vector<Shape> shapes = {{20, 33}, {40, 3, 3}, {2, 2}};
  const uint32_t ranks = 3;
  CompressorRig rig({.ranks = ranks}, shapes, acpsgd(), {{"rank", 2}}, residual());
  low_rank::expect_balance(rig, shapes, ranks);
}

TEST(AcpSgd, EachPhaseSendsItsFactorAndBothKeepTheSameStates) {
  const std::vector<Shape> shapes = {{30, 50}, {9}, {0, 4}, {2, 90}};
  CompressorRig rig({.ranks = 2}, shapes, acpsgd());
  for (uint32_t phase = 0; phase < 2; ++phase)
    for (uint64_t i = 0; i < shapes.size(); ++i) {
      const PlannedNeed& need = rig.need(i, phase);
      EXPECT_EQ(need.period, 2u);
      ASSERT_EQ(need.rounds.size(), 1u);
      EXPECT_EQ(need.states.size(), i == 0 || i == 3 ? 2u : 0u);
    }
  EXPECT_EQ(rig.need(0, 0).rounds[0].sections[0].capacity, 30u * 4);
  EXPECT_EQ(rig.need(0, 1).rounds[0].sections[0].capacity, 50u * 4);
  EXPECT_EQ(rig.need(3, 0).rounds[0].sections[0].capacity, 2u * 2) << "rank is at most a side";
  EXPECT_EQ(rig.need(1, 1).rounds[0].sections[0].capacity, 9u);
}

TEST(AcpSgd, TheRateLeavesSmallMatricesDense) {
  CompressorRig rig({.ranks = 1}, {{16, 16}, {17, 17}}, acpsgd(),
                    {{"minimum_compression_rate", 2.0}});
  EXPECT_EQ(rig.need(0).states.size(), 0u);
  EXPECT_EQ(rig.need(1).states.size(), 2u);
}

TEST(AcpSgd, AFactorAsWideAsTheMatrixLosesNothing) {
  // With rank = cols the right factor spans everything in phase 0. Afterwards nothing is left over,
  // so in phase 1 these gradients lie in the span of the left factor only if it spans everything:
  // rows = cols.
  const RankTensors gradients = draw_gradients(heavy_tailed, 3, {9 * 5, 6 * 6}, 0);
  CompressorRig rig({.ranks = 3}, {{9, 5}, {6, 6}}, acpsgd(), {{"rank", 8}}, residual());
  for (int step = 0; step < 4; ++step) {
    const Tensors mean = rig.step(gradients);
    for (uint64_t i = 0; i < 2; ++i) {
      if (i == 0 && step > 0) continue;
      low_rank::expect_mean(mean, gradients, i, 3e-5, "step " + std::to_string(step));
    }
  }
}

TEST(AcpSgd, AllZeroGradientsGiveZerosInBothPhasesAndTheMethodRecovers) {
  for (const int zero_steps : {1, 2, 3, 4}) {
    CompressorRig rig({.ranks = 2}, {{30, 40}}, acpsgd(), {}, residual());
    const RankTensors zeros(2, Tensors{std::vector<float>(1200, 0.0f)});
    for (int step = 0; step < zero_steps; ++step) EXPECT_EQ(rig.step(zeros)[0], zeros[0][0]);
    const RankTensors gradients(2, Tensors{oracle::layered_gradient(30, 40, 3, 0, 0)});
    Tensors sum{std::vector<float>(1200, 0.0f)};
    const int steps = 8;
    for (int step = 0; step < steps; ++step) {
      const Tensors mean = rig.step(gradients);
      for (uint64_t e = 0; e < 1200; ++e) sum[0][e] += mean[0][e];
    }
    EXPECT_LT(low_rank::squared_error(sum[0], gradients[0][0], 1.0 / steps), 0.05) << zero_steps;
  }
}

TEST(AcpSgd, ASumOfZerosKeepsTheFactors) {
  low_rank::expect_zeros_keep_factors(acpsgd(), {"p", "q"});
}

TEST(AcpSgd, GradientsThatGoDenseAreTakenOutWhole) {
  low_rank::expect_dense_is_taken_out(acpsgd());
}

TEST(AcpSgd, AGradientOfLowRankLeavesNoDeadColumnBehind) {
  const uint64_t rows = 24, cols = 50, rank = 4;
  CompressorRig rig({.ranks = 2}, {{rows, cols}}, acpsgd(), {}, residual());
  const std::vector<float> thin = low_rank::thin_matrix(rows, cols);
  for (int step = 0; step < 4; ++step) rig.step(RankTensors(2, Tensors{thin}));
  for (const char* name : {"p", "q"})
    low_rank::expect_orthonormal(rig.compressor_state(1, 0, name), rank, name);
}

TEST(AcpSgd, ASumOfTheOtherPhaseIsRefusedAndChangesNoState) {
  CompressorRig rig({.ranks = 2}, {{40, 30}}, acpsgd());
  rig.step(draw_gradients(heavy_tailed, 2, {1200}, 0));  // the next step has phase 1
  const std::vector<float> q = rig.compressor_state(0, 0, "q");
  const PayloadPointer left = dense_payload(std::vector<float>(160, 1.0f), -1);
  low_rank::expect_sum_refused(rig, {rig.compressor_item(0, 0)}, {left->c()}, "gradient0");
  EXPECT_EQ(rig.compressor_state(0, 0, "q"), q);
}

TEST(AcpSgd, CompensatingInTheSameSweepChangesNoBit) {
  expect_folding_changes_no_bit(acpsgd(), {{"rank", 3}}, {{37, 20}, {64, 64}}, 1e-6);
}

TEST(AcpSgd, SendsAProjectionOfEachRanksMatrix) {
  low_rank::expect_sends_projections(acpsgd());
}

TEST(AcpSgd, FactorsOf16BitsFollowThePaperWithRoundedFactors) {
  low_rank::expect_narrow_factors_follow<Oracle, 0>(acpsgd());
  low_rank::expect_narrow_factors_follow<Oracle, 1>(acpsgd());
}

TEST(AcpSgd, FactorsOf16BitsLoseNothingThatARankRoundsAway) {
  low_rank::expect_thin_matrices_to_the_bit(acpsgd(), {40, 1}, 2);
  low_rank::expect_narrow_balance(acpsgd());
}

TEST(AcpSgd, FactorsOf16BitsTakeHalfTheBytes) {
  low_rank::expect_factors_take_half_the_bytes(acpsgd());
  low_rank::expect_wide_sums_are_refused(acpsgd());
}

TEST(AcpSgd, FactorsOf16BitsAreTheSameWhereverTheyAreMade) {
  low_rank::expect_narrow_factors_are_the_same_everywhere(acpsgd());
}

}  // namespace
}  // namespace penstock::test

// Alternating Power-SGD against its recurrence in double, and where it differs from ACP-SGD.
#include <gtest/gtest.h>

#include "support/compressor_cases.hpp"
#include "support/low_rank_cases.hpp"
#include "support/narrow_factors.hpp"

namespace penstock::test {
namespace {

using oracle::Matrix;

LoadedPlugin alternating() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}
LoadedPlugin residual() {
  return load_plugin("memory", "residual");
}

// The authors' package, with G the gradient plus the kept values: even steps  Q = sum G^T orth(P),
// odd steps  P = sum G orth(Q);  G -= own product;  update = product of the sum / ranks.
struct Oracle {
  Oracle(uint32_t ranks, uint64_t rows, uint64_t cols, uint64_t rank, uint64_t gradient)
      : kept(ranks, Matrix(rows, cols)), input(oracle::normals(1, gradient, 2, rows, rank)) {}

  Matrix step(uint64_t index, const std::vector<Matrix>& gradients) {
    const bool even = index % 2 == 0;
    const Matrix known = oracle::orthonormal(input);
    Matrix sum(even ? kept[0].cols : kept[0].rows, known.cols);
    const auto product = [&](const Matrix& output) {
      return even ? oracle::product(known, oracle::transposed(output))
                  : oracle::product(output, oracle::transposed(known));
    };
    for (uint64_t r = 0; r < gradients.size(); ++r) {
      kept[r] = oracle::combined(kept[r], 1, gradients[r]);
      const Matrix own = wire.sent(
          oracle::product(even ? oracle::transposed(kept[r]) : kept[r], known), gradients.size());
      kept[r] = oracle::combined(kept[r], -1, product(own));
      sum = oracle::combined(sum, 1, own);
    }
    input = wire.summed(sum);
    Matrix mean = product(input);
    for (double& value : mean.entries) value /= static_cast<double>(gradients.size());
    return mean;
  }
  std::vector<Matrix> kept;
  Matrix input;
  low_rank::OracleWire wire;
};

TEST(PowerSgdAlternating, FollowsTheAuthorsPackageOverManySteps) {
  low_rank::expect_follows_over_many_steps<Oracle>(alternating(), 9);
}

TEST(PowerSgdAlternating, FollowsTheAuthorsPackageOnEveryDistribution) {
  low_rank::expect_follows_on_every_distribution<Oracle>(alternating(), 2);
}

TEST(PowerSgdAlternating, SixteenMillionElementsEqualTheOracle) {
  low_rank::expect_large_matrices_follow<Oracle>(alternating());
}

TEST(PowerSgdAlternating, WhatIsSentAndWhatIsKeptAddUpToAllGradientsOver100Steps) {
  const std::vector<Shape> shapes = {{20, 33}, {40, 3, 3}};
  const uint32_t ranks = 3;
  CompressorRig rig({.ranks = ranks}, shapes, alternating(),
                    {{"rank", 2}, {"minimum_compression_rate", 0}}, residual());
  low_rank::expect_balance(rig, shapes, ranks);
}

TEST(PowerSgdAlternating, SendsTheRightFactorFirst) {
  CompressorRig rig({.ranks = 2}, {{30, 50}, {9}, {0, 4}}, alternating());
  for (uint32_t phase = 0; phase < 2; ++phase)
    for (uint64_t i = 0; i < 3; ++i) {
      EXPECT_EQ(rig.need(i, phase).period, 2u);
      ASSERT_EQ(rig.need(i, phase).rounds.size(), 1u);
      EXPECT_EQ(rig.need(i, phase).rounds[0].c.combine, uint32_t{PENSTOCK_COMBINE_SUM});
      EXPECT_EQ(rig.need(i, phase).states.size(), i == 0 ? 2u : 0u);
    }
  EXPECT_EQ(rig.need(0, 0).rounds[0].sections[0].capacity, 50u * 4);
  EXPECT_EQ(rig.need(0, 1).rounds[0].sections[0].capacity, 30u * 4);
  EXPECT_NE(rig.need(0, 0).rounds[0].c.flags & PENSTOCK_ROUND_SAME_BITS, 0u);
}

TEST(PowerSgdAlternating, CountsOneFactorPerStepWhenItJudgesARate) {
  // Rank 4: a factor has 4 n elements on average where both sides are n; at rate 2 that must be
  // below half of n^2, so n must be above 8.
  CompressorRig rig({.ranks = 1}, {{8, 8}, {9, 9}, {16, 16}}, alternating());
  EXPECT_EQ(rig.need(0).states.size(), 0u);
  EXPECT_EQ(rig.need(1).states.size(), 2u);
  EXPECT_EQ(rig.need(2).states.size(), 2u);
}

TEST(PowerSgdAlternating, OnATransposedMatrixItIsAcpSgd) {
  // Left and right change places, and so does which comes first; only the first factor is drawn
  // from another stream, so both start here from a rank that spans the whole matrix.
  const uint64_t rows = 6, cols = 6;
  const OptionSettings full{{"rank", 8}, {"minimum_compression_rate", 0}};
  CompressorRig ours({.ranks = 2}, {{rows, cols}}, alternating(), full, residual());
  CompressorRig acp({.ranks = 2}, {{cols, rows}}, load_plugin("compressor", "acpsgd"), full,
                    residual());
  for (uint64_t step = 0; step < 6; ++step) {
    const RankTensors gradients = draw_gradients(heavy_tailed, 2, {rows * cols}, step);
    RankTensors turned = gradients;
    for (uint32_t r = 0; r < 2; ++r)
      for (uint64_t i = 0; i < rows; ++i)
        for (uint64_t j = 0; j < cols; ++j)
          turned[r][0][j * rows + i] = gradients[r][0][i * cols + j];
    const Tensors mean = ours.step(gradients), expected = acp.step(turned);
    const double tolerance = 1e-5 * oracle::largest(oracle::sum_of(gradients, 0)) + 1e-6;
    for (uint64_t i = 0; i < rows; ++i)
      for (uint64_t j = 0; j < cols; ++j)
        ASSERT_NEAR(mean[0][i * cols + j], expected[0][j * rows + i], tolerance) << step;
  }
}

TEST(PowerSgdAlternating, ZerosKeepTheFactorsAndTheMethodRecovers) {
  CompressorRig rig({.ranks = 2}, {{30, 40}}, alternating(), {}, residual());
  const RankTensors zeros(2, Tensors{std::vector<float>(1200, 0.0f)});
  for (int step = 0; step < 3; ++step) EXPECT_EQ(rig.step(zeros)[0], zeros[0][0]);
  const RankTensors gradients(2, Tensors{oracle::layered_gradient(30, 40, 3, 0, 0)});
  std::vector<double> sum(1200, 0.0);
  for (int step = 0; step < 8; ++step) {
    const Tensors mean = rig.step(gradients);
    for (uint64_t e = 0; e < 1200; ++e) sum[e] += double{mean[0][e]};
  }
  double difference = 0, square = 0;
  for (uint64_t e = 0; e < 1200; ++e) {
    difference += std::pow(sum[e] / 8 - gradients[0][0][e], 2);
    square += std::pow(gradients[0][0][e], 2);
  }
  EXPECT_LT(difference, 0.05 * square);
  const std::vector<float> p = rig.compressor_state(0, 0, "p"), q = rig.compressor_state(0, 0, "q");
  StepSettings silent;
  silent.joined = {0, 1};
  for (int step = 0; step < 2; ++step) EXPECT_EQ(rig.step(zeros, silent)[0], zeros[0][0]);
  EXPECT_EQ(rig.compressor_state(0, 0, "p"), p);
  EXPECT_EQ(rig.compressor_state(0, 0, "q"), q);
}

TEST(PowerSgdAlternating, ASumOfTheOtherPhaseIsRefusedAndChangesNoState) {
  CompressorRig rig({.ranks = 2}, {{40, 30}}, alternating());
  rig.step(draw_gradients(heavy_tailed, 2, {1200}, 0));  // the next step has phase 1
  const std::vector<float> p = rig.compressor_state(0, 0, "p");
  const penstock_item* item = rig.compressor_item(0, 0);
  const PayloadPointer right = dense_payload(std::vector<float>(120, 1.0f), -1);
  const penstock_payload* payload = right->c();
  const penstock_step step = rig.step_facts(0);
  const penstock_exec exec = rig.exec();
  const CompressorInstance& compressor = rig.compressor(0);
  EXPECT_TRUE(
      fails_with(compressor.table().decode(compressor.self(), &exec, &step, 0, &item, 1, &payload,
                                           1, PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST),
                 PENSTOCK_INVALID_PAYLOAD, "gradient0"));
  EXPECT_EQ(rig.compressor_state(0, 0, "p"), p);
}

TEST(PowerSgdAlternating, CompensatingInTheSameSweepChangesNoBit) {
  expect_folding_changes_no_bit(alternating(), {{"rank", 3}}, {{37, 20}, {64, 64}}, 1e-6);
}

TEST(PowerSgdAlternating, SendsAProjectionOfEachRanksMatrix) {
  low_rank::expect_sends_projections(alternating());
}

TEST(PowerSgdAlternating, FactorsOf16BitsFollowThePaperWithRoundedFactors) {
  low_rank::expect_narrow_factors_follow<Oracle, 0>(alternating());
  low_rank::expect_narrow_factors_follow<Oracle, 1>(alternating());
}

TEST(PowerSgdAlternating, FactorsOf16BitsLoseNothingThatARankRoundsAway) {
  low_rank::expect_thin_matrices_to_the_bit(alternating(), {1, 40}, 2);
  low_rank::expect_narrow_balance(alternating());
}

TEST(PowerSgdAlternating, FactorsOf16BitsTakeHalfTheBytes) {
  low_rank::expect_factors_take_half_the_bytes(alternating());
  low_rank::expect_wide_sums_are_refused(alternating());
}

TEST(PowerSgdAlternating, FactorsOf16BitsAreTheSameWhereverTheyAreMade) {
  low_rank::expect_narrow_factors_are_the_same_everywhere(alternating());
}

}  // namespace
}  // namespace penstock::test

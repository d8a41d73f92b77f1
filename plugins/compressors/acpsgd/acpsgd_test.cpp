// ACP-SGD against its two alternating projections in double, and its behaviour at the edges.
#include <gtest/gtest.h>

#include <cstring>

#include "support/low_rank_oracle.hpp"

namespace penstock::test {
namespace {

using oracle::Matrix;

LoadedPlugin acpsgd() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}
LoadedPlugin residual() {
  return load_plugin("memory", "residual");
}

// One matrix of all ranks; the factors take turns.
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
          oracle::product(sends_left ? error[r] : oracle::transposed(error[r]), known);
      sent = oracle::combined(sent, 1, own);
      error[r] = oracle::combined(error[r], -1, expanded(sends_left, own, known));
    }
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
};

TEST(AcpSgd, FollowsThePaperOverManySteps) {
  const std::vector<Shape> shapes = {{12, 7}, {7, 30}, {6, 5, 3}, {65, 130}, {17}, {1, 9}, {9, 1}};
  for (const uint32_t ranks : {1u, 2u, 3u, 4u}) {
    CompressorRig rig({.ranks = ranks, .check_mass = true, .mass_tolerance = 1e-6}, shapes,
                      acpsgd(), {{"rank", 3}}, residual());
    std::vector<Oracle> oracles;
    for (uint64_t i = 0; i < shapes.size(); ++i) {
      const oracle::View view = oracle::view_of(shapes[i]);
      oracles.emplace_back(ranks, view.rows, view.cols,
                           std::min({uint64_t{3}, view.rows, view.cols}), i);
    }
    for (uint64_t step = 0; step < 9; ++step) {
      const RankTensors gradients = oracle::layered_gradients(shapes, ranks, step);
      const Tensors mean = rig.step(gradients);
      for (uint64_t i = 0; i < shapes.size(); ++i) {
        const oracle::View view = oracle::view_of(shapes[i]);
        std::vector<Matrix> of_ranks;
        for (uint32_t r = 0; r < ranks; ++r)
          of_ranks.emplace_back(view.rows, view.cols, gradients[r][i]);
        Matrix expected(view.rows, view.cols);
        if (shapes[i].size() < 2)  // dense in both phases
          for (const Matrix& of_rank : of_ranks)
            expected = oracle::combined(expected, 1.0 / ranks, of_rank);
        else
          expected = oracles[i].step(step, of_ranks);
        // Float rounding of products over up to 130 terms, carried along by nine steps.
        const double tolerance = 2e-5 * oracle::largest(expected.entries);
        for (uint64_t e = 0; e < expected.entries.size(); ++e)
          ASSERT_NEAR(mean[i][e], expected.entries[e], tolerance)
              << "item " << i << " element " << e << " step " << step << " ranks " << ranks;
      }
    }
  }
}

TEST(AcpSgd, WhatIsSentAndWhatIsKeptAddUpToAllGradientsOver100Steps) {
  const std::vector<Shape> shapes = {{20, 33}, {40, 3, 3}, {2, 2}};
  const uint32_t ranks = 3;
  CompressorRig rig({.ranks = ranks}, shapes, acpsgd(), {{"rank", 2}}, residual());
  std::vector<std::vector<double>> balance;  // gradients less updates
  for (uint64_t i = 0; i < shapes.size(); ++i) balance.emplace_back(rig.numel(i), 0.0);
  for (uint64_t step = 0; step < 100; ++step) {
    StepSettings settings;
    if (step % 10 == 3) settings.applied = false;
    if (step % 10 == 6) settings.void_rank = step / 10 % ranks;
    const RankTensors gradients = oracle::layered_gradients(shapes, ranks, step);
    const Tensors mean = rig.step(gradients, settings);
    for (uint64_t i = 0; i < shapes.size(); ++i)
      for (uint64_t e = 0; e < balance[i].size(); ++e) {
        for (uint32_t r = 0; r < ranks; ++r)
          if (settings.void_rank != r) balance[i][e] += gradients[r][i][e];
        if (settings.applied && !settings.void_rank) balance[i][e] -= ranks * mean[i][e];
      }
  }
  for (uint64_t i = 0; i < shapes.size(); ++i)
    for (uint64_t e = 0; e < balance[i].size(); ++e) {
      double kept = 0;
      for (uint32_t r = 0; r < ranks; ++r) kept += rig.work(r, i)[e];
      // 300 float additions of terms up to 10, each rounded to 1e-6 at most.
      ASSERT_NEAR(kept, balance[i][e], 2e-4) << "item " << i << " element " << e;
    }
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
  // so in phase 1 the same gradients lie in the span of the left one only where that is all: rows
  // = cols.
  const RankTensors gradients = draw_gradients(heavy_tailed, 3, {9 * 5, 6 * 6}, 0);
  CompressorRig rig({.ranks = 3}, {{9, 5}, {6, 6}}, acpsgd(), {{"rank", 8}}, residual());
  for (int step = 0; step < 4; ++step) {
    const Tensors mean = rig.step(gradients);
    for (uint64_t i = 0; i < 2; ++i) {
      if (i == 0 && step > 0) continue;
      const std::vector<double> sum = oracle::sum_of(gradients, i);
      for (uint64_t e = 0; e < sum.size(); ++e)
        ASSERT_NEAR(mean[i][e], sum[e] / 3, 1e-5 * oracle::largest(sum)) << i << " " << step;
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
    double difference = 0, square = 0;
    for (uint64_t e = 0; e < 1200; ++e) {
      difference += std::pow(sum[0][e] / steps - gradients[0][0][e], 2);
      square += std::pow(gradients[0][0][e], 2);
    }
    EXPECT_LT(difference, 0.05 * square) << zero_steps;
  }
}

TEST(AcpSgd, ASumOfZerosKeepsTheFactors) {
  CompressorRig rig({.ranks = 2}, {{40, 40}}, acpsgd());
  const RankTensors zeros(2, Tensors{std::vector<float>(1600, 0.0f)});
  for (uint64_t step = 0; step < 2; ++step) rig.step(draw_gradients(heavy_tailed, 2, {1600}, step));
  const std::vector<float> p = rig.compressor_state(0, 0, "p");
  const std::vector<float> q = rig.compressor_state(0, 0, "q");
  StepSettings silent;  // no rank has data: the sum is absent
  silent.joined = {0, 1};
  for (const bool data : {true, false, false, true}) {  // zeros and silence in both phases
    EXPECT_EQ(rig.step(zeros, data ? StepSettings{} : silent)[0], zeros[0][0]);
  }
  EXPECT_NE(q, std::vector<float>(q.size(), 0.0f));
  EXPECT_EQ(rig.compressor_state(0, 0, "p"), p);
  EXPECT_EQ(rig.compressor_state(0, 0, "q"), q);
}

TEST(AcpSgd, GradientsThatGoDenseAreTakenOutWhole) {
  CompressorRig rig({.ranks = 2, .check_mass = true, .keep = true}, {{9}, {1}, {0, 3}}, acpsgd());
  const RankTensors gradients = draw_gradients(heavy_tailed, 2, {9, 1, 0}, 0);
  rig.step(gradients);  // the rig compares what was taken out with what the payload decodes to
  EXPECT_EQ(rig.sent(1, 0), gradients[1][0]);
}

TEST(AcpSgd, AGradientOfLowRankLeavesNoDeadColumnBehind) {
  const uint64_t rows = 24, cols = 50, rank = 4;
  CompressorRig rig({.ranks = 2}, {{rows, cols}}, acpsgd(), {}, residual());
  std::vector<float> thin(rows * cols);  // rank 1
  for (uint64_t e = 0; e < thin.size(); ++e)
    thin[e] = std::cos(static_cast<float>(e / cols)) * std::sin(static_cast<float>(e % cols));
  for (int step = 0; step < 4; ++step) rig.step(RankTensors(2, Tensors{thin}));
  for (const char* name : {"p", "q"}) {
    const std::vector<float> factor = rig.compressor_state(1, 0, name);
    for (uint64_t j = 0; j < rank; ++j)
      for (uint64_t k = 0; k <= j; ++k) {
        double dot = 0;
        for (uint64_t i = 0; i < factor.size() / rank; ++i)
          dot += double{factor[i * rank + j]} * factor[i * rank + k];
        EXPECT_NEAR(dot, j == k ? 1 : 0, 1e-5) << name << ": " << j << " and " << k;
      }
  }
}

TEST(AcpSgd, ASumOfTheOtherPhaseIsRefusedAndChangesNoState) {
  CompressorRig rig({.ranks = 2}, {{40, 30}}, acpsgd());
  rig.step(draw_gradients(heavy_tailed, 2, {1200}, 0));  // the next step has phase 1
  const std::vector<float> q = rig.compressor_state(0, 0, "q");
  const penstock_item* item = rig.compressor_item(0, 0);
  const PayloadPointer left = dense_payload(std::vector<float>(160, 1.0f), -1);
  const penstock_payload* payload = left->c();
  const penstock_step step = rig.step_facts(0);
  const penstock_exec exec = rig.exec();
  const CompressorInstance& compressor = rig.compressor(0);
  EXPECT_TRUE(
      fails_with(compressor.table().decode(compressor.self(), &exec, &step, 0, &item, 1, &payload,
                                           1, PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST),
                 PENSTOCK_INVALID_PAYLOAD, "gradient0"));
  EXPECT_EQ(rig.compressor_state(0, 0, "q"), q);
}

}  // namespace
}  // namespace penstock::test

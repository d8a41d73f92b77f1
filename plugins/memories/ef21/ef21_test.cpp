// EF21 and its momentum form against their recurrences in plain loops: the optimizer gets the mean
// of the ranks' shifts, and a shift is the sum of all values that its rank has sent.
#include <support/sparse_oracle.hpp>
#include <testing/checks.hpp>
#include <testing/gtest.hpp>
#include <testing/rig.hpp>

#include <cmath>

namespace penstock::test {
namespace {

const std::vector<Shape> kShapes{{160}, {0}, {1}, {8, 12}};
const std::vector<uint64_t> kNumels{160, 0, 1, 96};

LoadedPlugin ef21() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}
LoadedPlugin compressor(const char* name) {
  return load_plugin("compressor", name);
}

RankTensors zeros_of(uint32_t ranks) {
  RankTensors all(ranks);
  for (auto& of_rank : all)
    for (const uint64_t n : kNumels) of_rank.emplace_back(n);
  return all;
}

TEST(Ef21, WithTopKItIsThePublishedRecurrenceToTheBit) {
  for (const double zeta : {1.0, 0.25})
    for (const uint32_t ranks : {1u, 2u, 3u, 4u}) {
      CompressorRig rig({.ranks = ranks}, kShapes, compressor("topk"), {{"density", 0.05}}, ef21(),
                        {{"zeta", zeta}});
      RankTensors average = zeros_of(ranks), shift = average;
      Tensors estimate = zeros_of(1)[0];
      const auto z = static_cast<float>(zeta);
      for (uint64_t step = 0; step < 6; ++step) {
        const RankTensors gradients = draw_gradients(heavy_tailed, ranks, kNumels, step);
        Tensors sent = zeros_of(1)[0];
        for (uint32_t r = 0; r < ranks; ++r)
          for (size_t i = 0; i < kNumels.size(); ++i) {
            std::vector<float> difference(kNumels[i]);
            for (uint64_t e = 0; e < kNumels[i]; ++e) {
              float& v = average[r][i][e];
              v = (1 - z) * v + z * gradients[r][i][e];
              difference[e] = v - shift[r][i][e];
            }
            for (const uint32_t e : largest(difference, kept_of(kNumels[i], 0.05))) {
              shift[r][i][e] += difference[e];
              sent[i][e] += difference[e];
            }
          }
        // A power of two scales exactly.
        const Tensors got = rig.step(gradients, {.grad_scale = step % 2 == 0 ? 1.0 : 4096.0});
        for (size_t i = 0; i < kNumels.size(); ++i) {
          for (uint64_t e = 0; e < kNumels[i]; ++e)
            estimate[i][e] += sent[i][e] / static_cast<float>(ranks);
          ASSERT_EQ(got[i], estimate[i]) << ranks << " ranks, step " << step;
          for (uint32_t r = 0; r < ranks; ++r)
            ASSERT_EQ(rig.memory_state(r, i, "shift"), shift[r][i]);
        }
      }
    }
}

// The result must be the mean of the ranks' shifts, except for the rounding of a few hundred sums.
void expect_mean_of_shifts(const CompressorRig& rig, const Tensors& result) {
  for (uint64_t i = 0; i < rig.n_items(); ++i)
    for (uint64_t e = 0; e < rig.numel(i); ++e) {
      double mean = 0, size = 0;
      for (uint32_t r = 0; r < rig.ranks(); ++r) {
        const double shift = rig.memory_state(r, i, "shift")[e];
        mean += shift / rig.ranks();
        size = std::max(size, std::abs(shift));
      }
      ASSERT_NEAR(result[i][e], mean, 1e-4 * size + 1e-5) << i << ", " << e;
    }
}

TEST(Ef21, WhateverTheCompressorTheShiftIsWhatWasSentAndTheResultTheirMean) {
  for (const char* name : {"topk", "qsgd", "fp16", "randomk", "powersgd", "none"}) {
    SCOPED_TRACE(name);
    CompressorRig rig({.ranks = 3}, kShapes, compressor(name), {}, ef21(), {{"zeta", 0.5}});
    RankTensors shift = zeros_of(3);
    for (uint64_t step = 0; step < 8; ++step) {
      const Tensors got = rig.step(draw_gradients(heavy_tailed, 3, kNumels, step));
      for (uint32_t r = 0; r < 3; ++r)
        for (size_t i = 0; i < kNumels.size(); ++i) {
          for (uint64_t e = 0; e < kNumels[i]; ++e) shift[r][i][e] += rig.sent(r, i)[e];
          ASSERT_EQ(rig.memory_state(r, i, "shift"), shift[r][i]) << "step " << step;
        }
      if (std::string(name) == "fp16") continue;  // whose sums are rounded on the way
      ASSERT_NO_FATAL_FAILURE(expect_mean_of_shifts(rig, got));
    }
  }
}

// Random-k must not multiply the sent values here, because the rest follows.
TEST(Ef21, GradientsThatStayTheSameAreLearntWhole) {
  for (const char* name : {"topk", "randomk"}) {
    SCOPED_TRACE(name);
    CompressorRig rig({.ranks = 2}, {{8}}, compressor(name), {{"density", 0.25}}, ef21());
    const RankTensors gradients{{{1, -2, 3, 4, 5, 6, 7, 8}}, {{8, 7, 6, 5, 4, 3, -2, 1}}};
    Tensors got;
    for (int step = 0; step < 60; ++step) got = rig.step(gradients);
    EXPECT_EQ(got[0], (std::vector<float>{4.5, 2.5, 4.5, 4.5, 4.5, 4.5, 2.5, 4.5}));
  }
}

TEST(Ef21, VoidAndForgottenStepsLeaveTheEstimateTheMeanOfTheShifts) {
  CompressorRig rig({.ranks = 3}, kShapes, compressor("topk"), {{"density", 0.2}}, ef21());
  const auto next = [&] { return draw_gradients(heavy_tailed, 3, kNumels, rig.steps()); };
  rig.step(next());
  const std::vector<float> before = rig.memory_state(0, 0, "shift");
  rig.step(next(), {.void_rank = 1});
  EXPECT_EQ(rig.memory_state(0, 0, "shift"), before) << "nobody has received what was sent";
  rig.step(next(), {.forgotten = true});
  EXPECT_EQ(rig.memory_state(0, 0, "shift"), before) << "everybody has thrown away what was sent";
  rig.step(next(), {.joined = {2}});
  expect_mean_of_shifts(rig, rig.step(next()));
}

TEST(Ef21, KeepsTwoStatesAndAThirdWithMomentum) {
  CompressorRig plain({}, {{6}}, compressor("topk"), {}, ef21());
  CompressorRig momentum({}, {{6}}, compressor("topk"), {}, ef21(), {{"zeta", 0.1}});
  EXPECT_EQ(plain.memory_need(0).n_states, 2u);
  EXPECT_EQ(plain.memory_need(0).flags & PENSTOCK_MEMORY_OWNS_MOMENTUM, 0u);
  EXPECT_EQ(momentum.memory_need(0).n_states, 3u);
  EXPECT_NE(momentum.memory_need(0).flags & PENSTOCK_MEMORY_OWNS_MOMENTUM, 0u);
}

TEST(Ef21, DoesWhatEveryMemoryMust) {
  EXPECT_NO_THROW(run_checks(ef21()));
  EXPECT_NO_THROW(run_checks(ef21(), {{"zeta", 0.3}}));
}

}  // namespace
}  // namespace penstock::test

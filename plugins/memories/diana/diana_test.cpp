// DIANA against its recurrence in plain loops.
#include <testing/checks.hpp>
#include <testing/gtest.hpp>
#include <testing/rig.hpp>

#include <cmath>

namespace penstock::test {
namespace {

const std::vector<Shape> kShapes{{160}, {0}, {1}, {8, 12}};
const std::vector<uint64_t> kNumels{160, 0, 1, 96};

LoadedPlugin diana() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}
LoadedPlugin compressor(const char* name) {
  return load_plugin("compressor", name);
}

double mean_of(const CompressorRig& rig, uint64_t i, uint64_t e, const char* state) {
  double mean = 0;
  for (uint32_t r = 0; r < rig.ranks(); ++r)
    mean += double{rig.memory_state(r, i, state)[e]} / rig.ranks();
  return mean;
}

// The rig decodes the payloads that each compressor sent; the recurrence is computed in double.
TEST(Diana, ItIsThePublishedRecurrence) {
  const double alpha = 0.125;
  for (const char* name : {"qsgd", "randomk", "fp16", "none"})
    for (const uint32_t ranks : {1u, 2u, 4u}) {
      SCOPED_TRACE(std::string(name) + " on " + std::to_string(ranks) + " ranks");
      const OptionSettings density{{"density", 0.25}};
      CompressorRig rig({.ranks = ranks}, kShapes, compressor(name),
                        std::string(name) == "randomk" ? density : OptionSettings{}, diana(),
                        {{"alpha", alpha}});
      std::vector<std::vector<double>> shift(ranks * kNumels.size()), mean(kNumels.size());
      for (size_t i = 0; i < kNumels.size(); ++i) {
        mean[i].resize(kNumels[i]);
        for (uint32_t r = 0; r < ranks; ++r) shift[r * kNumels.size() + i].resize(kNumels[i]);
      }
      for (uint64_t step = 0; step < 6; ++step) {
        const RankTensors gradients = draw_gradients(heavy_tailed, ranks, kNumels, step);
        const Tensors got = rig.step(gradients, {.grad_scale = step % 2 == 0 ? 1.0 : 1024.0});
        for (size_t i = 0; i < kNumels.size(); ++i)
          for (uint64_t e = 0; e < kNumels[i]; ++e) {
            // Sums of halves have 11 bits.
            const double rounding = std::string(name) == "fp16" ? 8 * 0x1p-11 : 1e-4;
            double arrived = 0, largest = 1;
            for (uint32_t r = 0; r < ranks; ++r) {
              const double sent = rig.sent(r, i)[e];
              double& h = shift[r * kNumels.size() + i][e];
              // The compressed value is the gradient minus the shift.
              ASSERT_NEAR(rig.work(r, i)[e], gradients[r][i][e] - h, 1e-4 * (std::abs(h) + 10));
              h += alpha * sent;
              arrived += sent / ranks;
              largest = std::max({largest, std::abs(sent), std::abs(h)});
            }
            ASSERT_NEAR(got[i][e], mean[i][e] + arrived, rounding * largest) << "step " << step;
            mean[i][e] += alpha * arrived;
            ASSERT_NEAR(mean_of(rig, i, e, "shift"), mean[i][e], rounding * largest);
            ASSERT_NEAR(rig.memory_state(0, i, "mean")[e], mean[i][e], rounding * largest);
          }
      }
    }
}

// If gradients stay constant, the shifts become the gradients and no noise is left; random-k of a
// quarter alone has a variance of three times the square of each entry, for ever.
TEST(Diana, TheNoiseOfTheCompressorFades) {
  CompressorRig rig({.ranks = 2}, {{8}}, compressor("randomk"), {{"density", 0.25}}, diana(),
                    {{"alpha", 0.25}});
  const RankTensors gradients{{{1, -2, 3, 4, 5, 6, 7, 8}}, {{8, 7, 6, 5, 4, 3, -2, 1}}};
  Tensors got;
  for (int step = 0; step < 80; ++step) got = rig.step(gradients);
  const std::vector<float> expected{4.5, 2.5, 4.5, 4.5, 4.5, 4.5, 2.5, 4.5};
  for (size_t e = 0; e < expected.size(); ++e) EXPECT_NEAR(got[0][e], expected[e], 1e-4);
}

TEST(Diana, VoidAndForgottenStepsLeaveTheMeanThatOfTheShifts) {
  CompressorRig rig({.ranks = 3}, kShapes, compressor("qsgd"), {}, diana());
  const auto next = [&] { return draw_gradients(heavy_tailed, 3, kNumels, rig.steps()); };
  rig.step(next());
  const std::vector<float> before = rig.memory_state(0, 0, "shift");
  rig.step(next(), {.void_rank = 1});
  EXPECT_EQ(rig.memory_state(0, 0, "shift"), before) << "nobody has received what was sent";
  rig.step(next(), {.forgotten = true});
  EXPECT_EQ(rig.memory_state(0, 0, "shift"), before) << "everybody has thrown away what was sent";
  rig.step(next(), {.joined = {2}});
  for (uint64_t e = 0; e < kNumels[0]; ++e)
    EXPECT_NEAR(rig.memory_state(1, 0, "mean")[e], mean_of(rig, 0, e, "shift"), 1e-3);
}

TEST(Diana, KeepsTwoStatesAndPromisesNothingToBiasedCompressors) {
  CompressorRig rig({}, {{6}}, compressor("qsgd"), {}, diana());
  EXPECT_EQ(rig.memory_need(0).n_states, 2u);
  EXPECT_EQ(rig.memory_need(0).flags & PENSTOCK_MEMORY_ADDS_REST, 0u);
}

TEST(Diana, DoesWhatEveryMemoryMust) {
  EXPECT_NO_THROW(run_checks(diana()));
}

}  // namespace
}  // namespace penstock::test

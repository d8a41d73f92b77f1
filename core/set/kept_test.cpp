// The states of memories after steps that are void, forgotten or summed, or that follow a switch.

#include "core/set/testing.hpp"

#include <testing/data.hpp>

#include <cmath>
#include <limits>

namespace penstock::kept_test {
namespace {

using testing::make_set;
using testing::run_step;
using testing::scheme_text;
using testing::with_ranks;

using Values = std::vector<std::vector<float>>;

std::string scheme_of(const std::string& compressor, const std::string& memory,
                      const std::string& tables = "") {
  return scheme_text(
      fmt::format("compressor = \"{}\"\nmemory = \"{}\"\nscheduler = \"wfbp\"", compressor, memory),
      tables);
}

// Steps of one gradient of two ones, on both ranks. In step 1 the gradient of rank 1 has an
// infinity.
void expect_momentum_to_survive(const std::string& tables) {
  with_ranks(2, scheme_of("none", "dgc", tables), [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, {{"bias", {2}}});
    ASSERT_OK(set.status());
    const auto step = [&](float second, uint32_t outcome = PENSTOCK_STEP_APPLIED) {
      Values gradients{{1, second}};
      EXPECT_TRUE(run_step(*set.value(), gradients, outcome).ok());
      return gradients[0];
    };
    float u = 1;
    EXPECT_EQ(step(1), (std::vector<float>{u, u})) << tables;
    const auto spoiled =
        step(rank == 1 ? std::numeric_limits<float>::infinity() : 1, PENSTOCK_STEP_FORGOTTEN);
    EXPECT_FALSE(std::isfinite(spoiled[1])) << tables;
    for (int i = 0; i < 2; ++i) {
      u = 0.9f * u + 1;
      EXPECT_EQ(step(1), (std::vector<float>{u, u})) << tables;
    }
  });
}

TEST(Kept, AnInfinityIsNotKeptInTheMomentumOfALoneDenseGradient) {
  expect_momentum_to_survive("");
  expect_momentum_to_survive("nonfinite = \"strict\"\n");
  expect_momentum_to_survive("[memory.dgc]\nclipping = \"norm\"\nclip = 2\n");
}

// Checks that the results of three steps with gradients and two steps with zeros add up to the
// gradients.
void expect_nothing_missing_after(const std::string& compressor, const std::string& before,
                                  const std::string& after) {
  const std::string tables = fmt::format(
      "[compressor.{0}]\n{1}\n[[switch]]\nat_step = 3\nset = {{ compressor.{0}.{2} }}\n",
      compressor, before, after);
  with_ranks(2, scheme_of(compressor, "residual", tables), [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, {{"weight", {20, 20}}});
    ASSERT_OK(set.status());
    std::vector<double> missing(400, 0.0);
    bool was_missing = false;
    for (uint64_t step = 0; step < 5; ++step) {
      Values gradients{std::vector<float>(400)};
      const std::vector<float> of_rank[] = {test::heavy_tailed(400, 10 * step),
                                            test::heavy_tailed(400, 10 * step + 1)};
      if (step < 3) gradients[0] = of_rank[rank];
      for (size_t i = 0; i < 400 && step < 3; ++i)
        missing[i] += (double(of_rank[0][i]) + double(of_rank[1][i])) / 2;
      ASSERT_OK(run_step(*set.value(), gradients));
      for (size_t i = 0; i < 400; ++i) missing[i] -= double(gradients[0][i]);
      for (size_t i = 0; i < 400 && step == 2; ++i) was_missing |= std::abs(missing[i]) > 0.1;
    }
    EXPECT_TRUE(was_missing) << "the compressor lost nothing before the switch either";
    // A few roundings of entries below 100.
    for (const double value : missing) ASSERT_NEAR(value, 0, 1e-3) << compressor;
  });
}

TEST(Kept, AnOptionThatMakesACompressorLosslessBringsOutWhatWasKept) {
  expect_nothing_missing_after("powersgd", "rank = 1\nminimum_compression_rate = 0",
                               "minimum_compression_rate = 100");
}

// A switch that keeps the memory does not end its momentum.
TEST(Kept, ASwitchBetweenLosslessCompressorsKeepsTheMomentum) {
  const std::string tables =
      "[compressor.powersgd]\nminimum_compression_rate = 100\n"
      "[[switch]]\nat_step = 1\nset = { compressor.powersgd.rank = 2 }\n"
      "[[switch]]\nat_step = 2\nset = { scheme.compressor = \"none\" }\n";
  with_ranks(2, scheme_of("powersgd", "dgc", tables), [&](Runtime& runtime, uint32_t) {
    auto set = make_set(runtime, {{"weight", {2, 2}}});
    ASSERT_OK(set.status());
    float u = 0;
    for (int step = 0; step < 4; ++step) {
      Values gradients{{1, 1, 1, 1}};
      ASSERT_OK(run_step(*set.value(), gradients));
      u = 0.9f * u + 1;
      EXPECT_EQ(gradients[0], std::vector<float>(4, u)) << "step " << step;
    }
  });
}

// P ranks with a gradient of ones. The mean has norm 1, and clipping to 1/2 halves it.
TEST(Kept, ASumIsTheMeanTimesTheRanksUnderClippingToo) {
  const std::string tables =
      "[compressor.topk]\ndensity = 1\n[memory.dgc]\nclipping = \"norm\"\nclip = 0.5\n"
      "[[rule]]\nmatch = { dims = 1 }\ncompressor = \"none\"\n";
  for (const uint32_t ranks : {1u, 3u, 4u})
    with_ranks(ranks, scheme_of("topk", "dgc", tables), [&](Runtime& runtime, uint32_t) {
      auto set = make_set(runtime, {{"weight", {1, 1}}, {"bias", {1}}}, PENSTOCK_SET_SUM);
      ASSERT_OK(set.status());
      // Masking removes the momentum of sent entries. The momentum of a mean stays.
      for (const float momentum : {0.0f, 0.5f * 0.9f}) {
        Values gradients{{1}, {1}};
        ASSERT_OK(run_step(*set.value(), gradients));
        // The factor clip / (norm + 1e-6) differs from 1/2 by half a millionth, plus some
        // roundings.
        EXPECT_NEAR(gradients[0][0], 0.5f * float(ranks), 1e-5f);
        EXPECT_NEAR(gradients[1][0], (0.5f + momentum) * float(ranks), 1e-5f);
      }
    });
}

// The forgotten step has no effect on compressed gradients and on gradients that are sent whole.
TEST(Kept, AForgottenStepLeavesMomentumAndVelocityAsTheyWere) {
  const std::string tables =
      "[compressor.topk]\ndensity = 0.25\n[[rule]]\nmatch = { dims = 1 }\ncompressor = \"none\"\n";
  for (const char* scheduler : {"wfbp", "fusion"}) {
    const std::string keys =
        fmt::format("compressor = \"topk\"\nmemory = \"dgc\"\nscheduler = \"{}\"", scheduler);
    with_ranks(2, scheme_text(keys, tables), [&](Runtime& runtime, uint32_t) {
      auto set = make_set(runtime, {{"weight", {2, 2}}, {"bias", {2}}});
      ASSERT_OK(set.status());
      const auto step = [&](std::vector<float> weight, uint32_t outcome) {
        Values gradients{std::move(weight), {1, 2}};
        EXPECT_TRUE(run_step(*set.value(), gradients, outcome).ok());
        return gradients;
      };
      const auto expect = [&](const std::vector<float>& weight, const Values& results) {
        for (int i = 0; i < 2; ++i) EXPECT_EQ(step(weight, PENSTOCK_STEP_FORGOTTEN), results);
        EXPECT_EQ(step(weight, PENSTOCK_STEP_APPLIED), results);
      };
      expect({4, 1, 1, 1}, {{4, 0, 0, 0}, {1, 2}});
      // For unsent entries u = 0.9 + 1 and v = 1 + u.
      expect({0, 1, 0, 0}, {{0, 1 + (0.9f * 1 + 1), 0, 0}, {0.9f + 1, 0.9f * 2 + 2}});
    });
  }
}

}  // namespace
}  // namespace penstock::kept_test

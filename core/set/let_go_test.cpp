// The reaction to many forgotten steps in a row, and to ranks whose outcomes differ.
#include "core/set/testing.hpp"

#include <gmock/gmock.h>

namespace penstock::testing {
namespace {

// One entry of four is sent, so three quarters stay in the residual.
const std::string kKeeps = scheme_text("compressor = \"topk\"\nmemory = \"residual\"",
                                       "[compressor.topk]\ndensity = 0.25\n");

std::vector<std::vector<float>> gradient_of(float value) {
  return {{value, 2 * value, 3 * value, 4 * value}};
}

std::string text_of(const std::string& scheme, const std::string& keys) {
  std::string text = scheme;
  const std::string table = "[runtime]\n";
  return text.insert(text.find(table) + table.size(), keys);
}

std::string saved(Set& set) {
  std::string bytes;
  EXPECT_TRUE(set.save(bytes).ok());
  return bytes;
}

// The result of the next step with a gradient of zeros: the mass in the memory.
float largest_kept(Set& set) {
  auto zeros = gradient_of(0);
  EXPECT_TRUE(run_step(set, zeros).ok());
  return *std::max_element(zeros[0].begin(), zeros[0].end());
}

TEST(LetGo, EmptiesWhatMemoriesKeepAndTrainingGoesOn) {
  with_ranks(2, kKeeps, [](Runtime& runtime, uint32_t) {
    const auto set = make_set(runtime, {{"weight", {4}}});
    ASSERT_OK(set.status());
    auto gradients = gradient_of(1);
    ASSERT_OK(run_step(*set.value(), gradients));
    ASSERT_OK(set.value()->let_go());
    EXPECT_EQ(largest_kept(*set.value()), 0);
  });
}

TEST(LetGo, OfAStepUnderWayForgetsItFirst) {
  with_ranks(2, kKeeps, [](Runtime& runtime, uint32_t) {
    const auto set = make_set(runtime, {{"weight", {4}}});
    ASSERT_OK(set.status());
    auto gradients = gradient_of(1);
    ASSERT_OK(set.value()->gradient_ready(0, view_of(gradients[0])));
    ASSERT_OK(set.value()->wait_all());
    ASSERT_OK(set.value()->let_go());
    penstock_counters counters{};
    counters.struct_size = sizeof counters;
    set.value()->counters(counters);
    EXPECT_EQ(counters.steps, 0u);
    EXPECT_EQ(counters.forgotten_steps, 1u);
    EXPECT_EQ(largest_kept(*set.value()), 0);
  });
}

TEST(ForgetLimit, LetsGoAfterSoManyForgottenStepsRunning) {
  with_ranks(2, text_of(kKeeps, "forget_limit = 3\n"), [](Runtime& runtime, uint32_t) {
    const auto set = make_set(runtime, {{"weight", {4}}});
    ASSERT_OK(set.status());
    auto spike = gradient_of(1000);
    ASSERT_OK(run_step(*set.value(), spike));
    for (int step = 0; step < 2; ++step) {
      auto thrown_away = gradient_of(1);
      ASSERT_OK(run_step(*set.value(), thrown_away, false));
      EXPECT_GE(thrown_away[0][2], 3000);  // the rest of the spike is sent again
    }
    auto last = gradient_of(1);
    ASSERT_OK(run_step(*set.value(), last, false));
    auto gradients = gradient_of(1);
    ASSERT_OK(run_step(*set.value(), gradients));
    EXPECT_EQ(gradients[0], (std::vector<float>{0, 0, 0, 4}));
  });
}

TEST(ForgetLimit, CountsOnlyStepsThatFollowEachOther) {
  with_ranks(2, text_of(kKeeps, "forget_limit = 3\n"), [](Runtime& runtime, uint32_t) {
    const auto set = make_set(runtime, {{"weight", {4}}});
    ASSERT_OK(set.status());
    for (const bool applied : {true, false, false, true, false, false}) {
      auto gradients = gradient_of(1);
      ASSERT_OK(run_step(*set.value(), gradients, applied));
    }
    EXPECT_GT(largest_kept(*set.value()), 0);
  });
}

TEST(ForgottenSteps, LeaveNoTraceInWhatIsSaved) {
  with_ranks(2, kKeeps, [](Runtime& runtime, uint32_t) {
    const auto set = make_set(runtime, {{"weight", {4}}});
    ASSERT_OK(set.status());
    auto gradients = gradient_of(1);
    ASSERT_OK(run_step(*set.value(), gradients));
    const std::string before = saved(*set.value());
    for (int step = 0; step < 12; ++step) {
      auto thrown_away = gradient_of(float(step));
      ASSERT_OK(run_step(*set.value(), thrown_away, false));
      EXPECT_EQ(saved(*set.value()), before);
    }
  });
}

// With gathered messages the error names the other rank; with sums it says only "another rank".
TEST(RanksThatDiffer, AreToldWithTheNextMessage) {
  const std::string sums =
      scheme_text("compressor = \"powersgd\"\nmemory = \"residual\"",
                  "[compressor.powersgd]\nrank = 1\nminimum_compression_rate = 0.1\n");
  for (const std::string& scheme : {kKeeps, sums})
    for (const uint32_t odd_one : {0, 1}) {
      std::vector<std::string> said(3);
      with_ranks(3, scheme, [&](Runtime& runtime, uint32_t rank) {
        const auto set = make_set(runtime, {{"weight", {2, 2}}});
        ASSERT_OK(set.status());
        auto gradients = gradient_of(1);
        ASSERT_OK(run_step(*set.value(), gradients, rank != odd_one));
        gradients = gradient_of(1);
        const Status status = run_step(*set.value(), gradients);
        EXPECT_FALSE(status.ok());
        said[rank] = status.message();
      });
      std::string all;
      for (const std::string& one : said) all += one + "\n";
      EXPECT_THAT(all, ::testing::ContainsRegex(
                           "the results of its last step, number 1, but (another rank|rank .) "
                           "has not"));
    }
}

TEST(ForgetFalse, RefusesToForgetAndNamesTheKey) {
  with_ranks(2, text_of(kKeeps, "forget = false\n"), [](Runtime& runtime, uint32_t) {
    const auto set = make_set(runtime, {{"weight", {4}}});
    ASSERT_OK(set.status());
    auto gradients = gradient_of(1);
    ASSERT_OK(run_step(*set.value(), gradients));
    gradients = gradient_of(1);
    const Status status = run_step(*set.value(), gradients, false);
    EXPECT_EQ(status.code(), Code::failed_precondition);
    EXPECT_NE(status.message().find("[runtime] forget = false"), std::string::npos)
        << status.message();
    ASSERT_OK(set.value()->step_end());  // the step has not ended yet
  });
}

}  // namespace
}  // namespace penstock::testing

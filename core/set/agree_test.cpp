// Ranks that would continue from different states are notified before any data of a step moves.

#include "core/set/testing.hpp"

#include <mutex>

namespace penstock::agree_test {
namespace {

using testing::make_set;
using testing::run_step;
using testing::scheme_text;
using testing::view_of;
using testing::with_ranks;

const std::vector<testing::GradientShape> kShapes{{"weight", {64}}, {"bias", {3}}};
const std::string kTopK = "compressor = \"topk\"\nmemory = \"residual\"";

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

Status step_of(Set& set, uint32_t rank) {
  std::vector<std::vector<float>> gradients{std::vector<float>(64, float(rank + 1)), {1, 2, 3}};
  return run_step(set, gradients);
}

// The state that each rank saved after this many steps.
std::vector<std::string> states_after(uint32_t ranks, uint64_t steps) {
  std::vector<std::string> saved(ranks);
  with_ranks(ranks, scheme_text(kTopK), [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    for (uint64_t step = 0; step < steps; ++step) ASSERT_OK(step_of(*set.value(), rank));
    ASSERT_OK(set.value()->save(saved[rank]));
  });
  return saved;
}

TEST(TextsOfFrontends, ThatDifferAreAnErrorOnEveryRankAndTheSetGoesOn) {
  for (const uint32_t ranks : {1u, 2u, 3u})
    with_ranks(ranks, scheme_text(kTopK), [&](Runtime& runtime, uint32_t rank) {
      auto set = make_set(runtime, kShapes);
      ASSERT_OK(set.status());
      std::vector<float> weight(64, 1), bias(3, 1);
      for (int step = 0; step < 6; ++step) {
        const bool differs = step % 3 == 1;
        const std::string rate = std::to_string(differs && rank == 1 ? 5 : 4);
        set.value()->agree("made = " + std::to_string(step) + "\nrate = " + rate + "\n");
        ASSERT_OK(set.value()->gradient_ready(1, view_of(bias)));
        ASSERT_OK(set.value()->gradient_ready(0, view_of(weight)));
        ASSERT_OK(set.value()->wait_all());
        const Status status = set.value()->agreed();
        if (differs && ranks > 1) {
          EXPECT_EQ(status.code(), Code::mismatch) << status.message();
          EXPECT_TRUE(contains(status.message(), "rank 1 has \"rate = 5\"")) << status.message();
        } else {
          ASSERT_OK(status);
        }
        ASSERT_OK(
            set.value()->step_end(status.ok() ? PENSTOCK_STEP_APPLIED : PENSTOCK_STEP_FORGOTTEN));
      }
    });
}

TEST(LoadedStates, OfDifferentStepsAreAMismatchOnEveryRankThatNamesRanksAndSteps) {
  const auto early = states_after(3, 2), late = states_after(3, 5);
  with_ranks(3, scheme_text(kTopK), [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    ASSERT_OK(set.value()->load(rank == 1 ? late[rank] : early[rank]));
    const Status status = step_of(*set.value(), rank);
    EXPECT_EQ(status.code(), Code::mismatch) << status.message();
    EXPECT_TRUE(contains(status.message(), "next step 2 of a loaded state")) << status.message();
    EXPECT_TRUE(contains(status.message(), "next step 5 of a loaded state")) << status.message();
    EXPECT_TRUE(contains(status.message(), "load the states of one step on all ranks"))
        << status.message();
    penstock_counters counters{};
    set.value()->counters(counters);
    EXPECT_EQ(counters.messages, 0u);
  });
}

// Horovod's idiom: rank 0 loads, and the other ranks get the parameters from it.
TEST(LoadedStates, OnRank0AloneAreAMismatchOnEveryRank) {
  const auto saved = states_after(3, 4);
  with_ranks(3, scheme_text(kTopK), [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    if (rank == 0) ASSERT_OK(set.value()->load(saved[rank]));
    const Status status = step_of(*set.value(), rank);
    EXPECT_EQ(status.code(), Code::mismatch) << status.message();
    EXPECT_TRUE(contains(status.message(), "next step 4 of a loaded state")) << status.message();
    EXPECT_TRUE(contains(status.message(), "next step 0")) << status.message();
  });
}

TEST(LoadedStates, OfOneStepGoOn) {
  const auto saved = states_after(2, 3);
  with_ranks(2, scheme_text(kTopK), [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    ASSERT_OK(step_of(*set.value(), rank));
    for (int again = 0; again < 3; ++again) {  // two or three times, also with messages under way
      ASSERT_OK(set.value()->load(saved[rank]));
      if (rank == 1) ASSERT_OK(set.value()->load(saved[rank]));
      ASSERT_OK(step_of(*set.value(), rank));
      ASSERT_OK(step_of(*set.value(), rank));
    }
    penstock_counters counters{};
    set.value()->counters(counters);
    EXPECT_EQ(counters.steps, 7u);
  });
}

// The other ranks wait in a step that waits for this rank.
TEST(LoadedStates, OnOneRankInMidRunEndEveryRankAfterTheDeadline) {
  const auto saved = states_after(2, 3);
  const std::string quick = "[scheme]\ncollective = \"loopback\"\n" + kTopK +
                            "\n[runtime]\ndeadline_s = 1\nheartbeat_s = 0.1\n";
  const uint64_t begin_us = now_us();
  with_ranks(2, quick, [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    ASSERT_OK(step_of(*set.value(), rank));
    if (rank == 0) ASSERT_OK(set.value()->load(saved[rank]));
    const Status status = step_of(*set.value(), rank);
    // Rank 1 may learn of the failure from its transport.
    EXPECT_FALSE(status.ok());
    if (rank == 1) return;
    EXPECT_EQ(status.code(), Code::mismatch);
    EXPECT_TRUE(contains(status.message(), "rank 0: next step 3 of a loaded state;"))
        << status.message();
    EXPECT_TRUE(contains(status.message(),
                         "load the states of one step on all ranks, or load no "
                         "state"));
  });
  EXPECT_LT(now_us() - begin_us, 20'000'000u);
}

TEST(LoadedStates, OfASetThatIsDestroyedBeforeTheAnswerLeaveNothing) {
  with_ranks(2, scheme_text(kTopK), [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    std::vector<float> weight(64, 1);
    if (rank == 0) ASSERT_OK(set.value()->gradient_ready(0, view_of(weight)));
    set.value().reset();
  });
}

}  // namespace
}  // namespace penstock::agree_test

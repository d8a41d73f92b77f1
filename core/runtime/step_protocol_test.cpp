// The step protocol as frontends use it, with real sets in worlds of one and two ranks.
#include "core/runtime/step_protocol.hpp"

#include "core/set/testing.hpp"

namespace penstock::step_protocol_test {
namespace {

using testing::make_set;
using testing::scheme_text;
using testing::view_of;
using testing::with_ranks;

using Indices = std::vector<uint64_t>;

// Three gradients of two elements, and the frontend's side of a step.
struct Frontend {
  explicit Frontend(Runtime& runtime, const std::string& name = "model")
      : set(make_set(runtime, {{"a", {2}}, {"b", {2}}, {"c", {2}}}, PENSTOCK_SET_DEFERRED_UPDATE,
                     name)),
        step(*set.value(), {"a", "b", "c"}) {}

  uint32_t came(uint64_t index) {
    uint32_t todo = UINT32_MAX;
    EXPECT_TRUE(step.came(index, nullptr, nullptr, todo).ok());
    return todo;
  }
  void hand_in(uint64_t index) {
    EXPECT_TRUE(set.value()->gradient_ready(index, view_of(values[index])).ok());
  }
  void hand_in_the_rest() {
    for (const uint64_t index : step.rest()) hand_in(index);
  }
  // A whole step up to the results.
  void synchronize() {
    ASSERT_OK(step.begin());
    hand_in_the_rest();
    ASSERT_OK(step.wait_all());
  }
  void first_step() {
    synchronize();
    ASSERT_OK(step.end(PENSTOCK_STEP_APPLIED));
  }
  uint64_t steps() const {
    penstock_counters counters{};
    set.value()->counters(counters);
    return counters.steps;
  }

  // The gradients must outlive the set, because the end of the set waits for its step.
  std::vector<std::vector<float>> values{{1, 1}, {2, 2}, {3, 3}};
  Result<SetHandle> set;
  StepProtocol step;
};

std::string scheme(const std::string& scheduler = "wfbp") {
  return scheme_text("scheduler = \"" + scheduler + "\"");
}

TEST(StepProtocol, HoldsTheFirstStepAndNamesWhatIsHeldInTheOrderOfBackward) {
  with_ranks(1, scheme(), [](Runtime& runtime, uint32_t) {
    Frontend one(runtime);
    EXPECT_EQ(one.step.phase(), PENSTOCK_PHASE_IDLE);
    EXPECT_FALSE(one.step.has_come());
    EXPECT_EQ(one.came(2), PENSTOCK_GRADIENT_HELD);
    EXPECT_EQ(one.came(0), PENSTOCK_GRADIENT_HELD);
    EXPECT_EQ(one.step.phase(), PENSTOCK_PHASE_HELD);
    EXPECT_TRUE(one.step.has_come());
    ASSERT_OK(one.step.begin());
    EXPECT_EQ(one.step.rest(), (Indices{2, 0, 1}));
    EXPECT_EQ(one.step.rest(), Indices{}) << "all count as handed in";
  });
}

TEST(StepProtocol, LaterGradientsLeaveAsTheyComeAndTheFirstOneBeginsTheStep) {
  with_ranks(1, scheme(), [](Runtime& runtime, uint32_t) {
    Frontend one(runtime);
    one.first_step();
    EXPECT_EQ(one.came(2), PENSTOCK_GRADIENT_BEGIN);
    ASSERT_OK(one.step.begin());
    one.hand_in(2);
    EXPECT_EQ(one.came(1), PENSTOCK_GRADIENT_HAND_IN);
    one.hand_in(1);
    const penstock_tensor tensor = view_of(one.values[0]);
    uint32_t todo = 0;
    ASSERT_OK(one.step.came(0, &tensor, nullptr, todo));
    EXPECT_EQ(todo, PENSTOCK_GRADIENT_IS_IN);
    EXPECT_FALSE(one.set.value()->gradient_ready(0, tensor).ok()) << "it is in";
    EXPECT_EQ(one.step.rest(), Indices{});
    ASSERT_OK(one.step.wait_all());
    EXPECT_EQ(one.step.phase(), PENSTOCK_PHASE_SYNCHRONIZED);
    EXPECT_FALSE(one.step.has_come());
    ASSERT_OK(one.step.end(PENSTOCK_STEP_APPLIED));
    EXPECT_EQ(one.step.phase(), PENSTOCK_PHASE_IDLE);
    EXPECT_EQ(one.steps(), 2u);
  });
}

TEST(StepProtocol, AGradientThatComesAfterTheResultsBelongsToTheNextStep) {
  with_ranks(1, scheme(), [](Runtime& runtime, uint32_t) {
    Frontend one(runtime);
    one.synchronize();
    EXPECT_EQ(one.came(1), PENSTOCK_GRADIENT_BEGIN);
    EXPECT_EQ(one.step.phase(), PENSTOCK_PHASE_SYNCHRONIZED);
    const Status early = one.step.begin();
    EXPECT_EQ(early.code(), Code::failed_precondition);
    EXPECT_NE(early.message().find("before the previous step has ended"), std::string::npos);
    ASSERT_OK(one.step.end(PENSTOCK_STEP_FORGOTTEN));
    ASSERT_OK(one.step.begin());
    one.hand_in(1);
    EXPECT_EQ(one.step.rest(), (Indices{0, 2})) << "it has come all the same";
  });
}

TEST(StepProtocol, APassTooManyIsRefusedByName) {
  with_ranks(1, scheme(), [](Runtime& runtime, uint32_t) {
    Frontend one(runtime);
    ASSERT_OK(one.step.set_passes(2, 1));
    EXPECT_EQ(one.came(1), PENSTOCK_GRADIENT_ADDS_UP);
    EXPECT_EQ(one.step.phase(), PENSTOCK_PHASE_IDLE) << "nothing is ready to leave";
    EXPECT_TRUE(one.step.has_come());
    EXPECT_EQ(one.came(1), PENSTOCK_GRADIENT_HELD);
    uint32_t todo = 0;
    const Status refused = one.step.came(1, nullptr, nullptr, todo);
    EXPECT_EQ(todo, PENSTOCK_GRADIENT_REFUSED);
    EXPECT_EQ(refused.code(), Code::failed_precondition);
    EXPECT_NE(refused.message().find("gradient 'b' more than 2 times"), std::string::npos)
        << refused.message();
    EXPECT_EQ(one.came(3), PENSTOCK_GRADIENT_ADDS_UP) << "one that is exchanged beside the set";
    EXPECT_EQ(one.step.came(4, nullptr, nullptr, todo).code(), Code::invalid_argument);
    EXPECT_EQ(one.step.set_passes(0, 0).code(), Code::invalid_argument);
    ASSERT_OK(one.step.set_passes(1, 1));
    EXPECT_EQ(one.came(3), PENSTOCK_GRADIENT_HELD) << "counting starts again";
    EXPECT_FALSE(one.step.came(1, nullptr, nullptr, todo).ok()) << "for what has not come";
    EXPECT_EQ(one.step.rest(), (Indices{1, 3, 0, 2}));
  });
}

TEST(StepProtocol, ResultsMayBeWaitedForOneByOneAndTwice) {
  with_ranks(1, scheme(), [](Runtime& runtime, uint32_t) {
    Frontend one(runtime);
    ASSERT_OK(one.step.begin());
    one.hand_in_the_rest();
    for (const uint64_t index : {1, 0, 1}) ASSERT_OK(one.step.wait(index));
    EXPECT_EQ(one.step.phase(), PENSTOCK_PHASE_OPEN);
    ASSERT_OK(one.step.wait_stream(2, nullptr));
    EXPECT_EQ(one.step.phase(), PENSTOCK_PHASE_SYNCHRONIZED);
  });
}

TEST(StepProtocol, APromisedStepEndsAsAppliedWithItsLastResult) {
  with_ranks(2, scheme("dear"), [](Runtime& runtime, uint32_t) {
    Frontend one(runtime);
    for (uint64_t step = 1; step < 4; ++step) {
      ASSERT_OK(one.step.begin());
      one.hand_in_the_rest();
      ASSERT_TRUE(one.set.value()->defers());
      ASSERT_OK(one.step.backward_end());
      EXPECT_EQ(one.step.phase(), PENSTOCK_PHASE_DEFERRED);
      EXPECT_EQ(one.step.begin().code(), Code::failed_precondition);
      EXPECT_EQ(one.came(0), PENSTOCK_GRADIENT_BEGIN) << "of the next step";
      for (const uint64_t index : {0, 1, 2}) {
        EXPECT_EQ(one.steps(), step - 1);
        ASSERT_OK(one.step.wait(index));
      }
      EXPECT_EQ(one.step.phase(), PENSTOCK_PHASE_IDLE);
      EXPECT_EQ(one.steps(), step);
      one.step.restart();
    }
  });
}

// A refused end leaves the step open, so another outcome may follow.
TEST(StepProtocol, AnEndThatIsRefusedEndsNothing) {
  const std::string keeps = scheme_text(
      "compressor = \"topk\"\nmemory = \"residual\"\nscheduler = \"wfbp\"", "forget = false\n");
  with_ranks(1, keeps, [](Runtime& runtime, uint32_t) {
    Frontend one(runtime);
    one.synchronize();
    EXPECT_EQ(one.step.end(PENSTOCK_STEP_FORGOTTEN).code(), Code::failed_precondition);
    EXPECT_EQ(one.step.phase(), PENSTOCK_PHASE_SYNCHRONIZED);
    ASSERT_OK(one.step.end(PENSTOCK_STEP_APPLIED));
    EXPECT_EQ(one.step.phase(), PENSTOCK_PHASE_IDLE);
  });
}

TEST(StepProtocol, WhatReplacesTheStateOfTheSetLeavesNoStep) {
  with_ranks(1, scheme(), [](Runtime& runtime, uint32_t) {
    Frontend one(runtime);
    std::string saved;
    ASSERT_OK(one.set.value()->save(saved));
    one.synchronize();
    EXPECT_EQ(one.step.load("nonsense").ok(), false);
    EXPECT_EQ(one.step.phase(), PENSTOCK_PHASE_SYNCHRONIZED) << "bytes that are refused";
    ASSERT_OK(one.step.load(saved));
    EXPECT_EQ(one.step.phase(), PENSTOCK_PHASE_IDLE);
    one.synchronize();
    one.came(1);
    ASSERT_OK(one.step.let_go());
    EXPECT_EQ(one.step.phase(), PENSTOCK_PHASE_IDLE);
    EXPECT_FALSE(one.step.has_come());
    one.synchronize();
    ASSERT_OK(one.step.reset());
    one.first_step();
  });
}

TEST(StepProtocol, RestartForgetsWhatCameAndKeepsResults) {
  with_ranks(1, scheme(), [](Runtime& runtime, uint32_t) {
    Frontend one(runtime);
    one.came(1);
    one.step.restart();
    EXPECT_EQ(one.step.phase(), PENSTOCK_PHASE_IDLE);
    one.synchronize();
    one.came(1);
    one.step.restart();
    EXPECT_FALSE(one.step.has_come());
    EXPECT_EQ(one.step.phase(), PENSTOCK_PHASE_SYNCHRONIZED);
  });
}

TEST(StepProtocol, WhoBeginsNoStepMeetsTheSetAlone) {
  with_ranks(1, scheme(), [](Runtime& runtime, uint32_t) {
    Frontend one(runtime);
    for (const uint64_t index : {0, 1, 2}) one.hand_in(index);
    ASSERT_OK(one.step.wait_all());
    EXPECT_EQ(one.step.phase(), PENSTOCK_PHASE_IDLE);
    ASSERT_OK(one.step.end(PENSTOCK_STEP_APPLIED));
    EXPECT_EQ(one.steps(), 1u);
  });
}

// Hooks run on several threads. Each gradient is handed in once, no matter which thread begins.
TEST(StepProtocol, GradientsComeOnManyThreads) {
  with_ranks(1, scheme(), [](Runtime& runtime, uint32_t) {
    Frontend one(runtime);
    one.first_step();
    std::mutex mutex;
    for (int step = 0; step < 50; ++step) {
      std::vector<std::thread> threads;
      for (const uint64_t index : {0, 1, 2})
        threads.emplace_back([&, index] {
          if (one.came(index) == PENSTOCK_GRADIENT_BEGIN) {
            std::lock_guard lock(mutex);
            EXPECT_TRUE(one.step.begin().ok());
          }
          one.hand_in(index);
        });
      for (std::thread& thread : threads) thread.join();
      EXPECT_EQ(one.step.rest(), Indices{});
      ASSERT_OK(one.step.wait_all());
      ASSERT_OK(one.step.end(PENSTOCK_STEP_APPLIED));
    }
    EXPECT_EQ(one.steps(), 51u);
  });
}

}  // namespace
}  // namespace penstock::step_protocol_test

// The outcome of a step's results: the rules of runtime.h, one by one.
#include "core/set/outcome.hpp"

#include <gtest/gtest.h>

namespace penstock::outcome_test {
namespace {

using Flags = std::vector<uint8_t>;
using Moment = Outcome::Moment;

// Gradients 0 and 1 belong to one optimizer, 2 belongs to another.
class Outcomes : public ::testing::Test {
 protected:
  Outcomes() { outcome.resize(3); }

  // An optimizer whose gradients no backward has computed yet, as at the very start.
  void is_known(const std::vector<uint64_t>& gradients) {
    step(gradients, false);
    outcome.begin();
  }
  void step(const std::vector<uint64_t>& gradients, bool has_results = true) {
    outcome.optimizer(gradients, {}, Moment::begins, has_results);
    outcome.optimizer(gradients, {}, Moment::ends, has_results);
  }
  Flags forgotten(bool any_void = false) const {
    Flags all(3);
    outcome.decide(any_void, all);
    return all;
  }

  const std::vector<uint64_t> both{0, 1};
  Outcome outcome;
};

TEST_F(Outcomes, BeforeAnyOptimizerWasSeenAreAppliedUnlessABucketWasVoid) {
  outcome.begin();
  EXPECT_EQ(forgotten(false), (Flags{0, 0, 0}));
  EXPECT_EQ(forgotten(true), (Flags{1, 1, 1}));
}

// If the optimizer is known, it decides: a loss scaler leaves the step out, or the step was
// applied.
TEST_F(Outcomes, OfAVoidBucketAreAsTheOptimizerHasThem) {
  is_known(both);
  step(both);
  EXPECT_EQ(forgotten(true), (Flags{0, 0, 1})) << "of the third no optimizer is known";
}

TEST_F(Outcomes, AreAppliedWhereAnOptimizerSteps) {
  outcome.begin();
  step(both);
  EXPECT_EQ(forgotten(), (Flags{0, 0, 0}));
}

TEST_F(Outcomes, AreForgottenWhereTheOptimizerDoesNotFindThem) {
  outcome.begin();
  outcome.optimizer(both, Flags{0, 1}, Moment::begins, true);
  outcome.optimizer(both, {}, Moment::ends, true);
  EXPECT_EQ(forgotten(), (Flags{0, 1, 0}));
}

TEST_F(Outcomes, AreForgottenWhereTheOptimizerLeavesItsStepOut) {
  outcome.begin();
  outcome.optimizer(both, {}, Moment::begins, true);
  outcome.optimizer(both, {}, Moment::leaves_out, true);
  EXPECT_EQ(forgotten(), (Flags{1, 1, 0}));
}

TEST_F(Outcomes, OfABackwardInsideAStepAreAppliedAtItsEnd) {
  is_known(both);
  outcome.optimizer(both, {}, Moment::begins, false);  // the closure runs backward
  outcome.begin();
  outcome.results_gone(Flags{1, 1, 1});  // counts only outside a step
  outcome.optimizer(both, Flags{0, 1}, Moment::ends, true);
  EXPECT_EQ(forgotten(), (Flags{0, 1, 0}));
}

// Two backwards in one step of LBFGS. The first ends when the second begins.
TEST_F(Outcomes, OfEachBackwardInsideAStepAreApplied) {
  is_known(both);
  outcome.optimizer(both, {}, Moment::begins, false);
  for (int backward = 0; backward < 2; ++backward) {
    outcome.begin();
    outcome.results_gone(Flags{1, 1, 0});  // the closure has zeroed them
    EXPECT_EQ(forgotten(), (Flags{0, 0, 0}));
  }
}

TEST_F(Outcomes, ThatWereUsedStayUsed) {
  outcome.begin();
  step(both);
  outcome.results_gone(Flags{1, 1, 1});
  outcome.optimizer(both, Flags{1, 1}, Moment::begins, true);  // a second call, without results
  outcome.optimizer(both, {}, Moment::ends, true);
  EXPECT_EQ(forgotten(), (Flags{0, 0, 0}));
}

TEST_F(Outcomes, ThatWereUsedStayUsedWhereALaterStepIsLeftOut) {
  for (const bool begins : {true, false}) {
    outcome.begin();
    step(both);
    if (begins) outcome.optimizer(both, {}, Moment::begins, true);
    outcome.optimizer(both, {}, Moment::leaves_out, true);
    EXPECT_EQ(forgotten(), (Flags{0, 0, 0}));
  }
}

// The step of an earlier backward has no results left to apply.
TEST_F(Outcomes, OfAClosureAreForgottenWhereTheStepAroundItIsLeftOut) {
  outcome.begin();
  step(both);
  outcome.optimizer(both, {}, Moment::begins, true);
  outcome.begin();
  outcome.optimizer(both, {}, Moment::leaves_out, true);
  EXPECT_EQ(forgotten(), (Flags{1, 1, 0}));
}

TEST_F(Outcomes, ThatAreGoneWithoutAStepAreForgotten) {
  is_known(both);
  outcome.results_gone(Flags{0, 1, 0});
  EXPECT_EQ(forgotten(), (Flags{0, 1, 0}));
}

TEST_F(Outcomes, ThatAreStillThereAreApplied) {
  is_known(both);
  outcome.results_gone(Flags{0, 0, 0});
  EXPECT_EQ(forgotten(), (Flags{0, 0, 0}));
}

// A program that changes parameters without a visible optimizer may clear gradients.
TEST_F(Outcomes, OfGradientsWithoutAnOptimizerAreNotLookedFor) {
  is_known(both);
  outcome.results_gone(Flags{1, 1, 1});
  EXPECT_EQ(forgotten(), (Flags{1, 1, 0}));
}

TEST_F(Outcomes, AStepThatIsForgottenByOneOptimizerIsNotByAnother) {
  is_known({0, 1, 2});
  outcome.optimizer(both, {}, Moment::begins, true);
  outcome.optimizer(both, {}, Moment::leaves_out, true);
  step({2});
  EXPECT_EQ(forgotten(), (Flags{1, 1, 0}));
}

TEST_F(Outcomes, OfTheNextStepAreDecidedAnew) {
  is_known(both);
  outcome.results_gone(Flags{1, 1, 0});
  outcome.begin();
  EXPECT_EQ(forgotten(), (Flags{0, 0, 0}));
  EXPECT_TRUE(outcome.is_open());
}

TEST_F(Outcomes, AreOpenUntilAnOptimizerHasSteppedOrSomebodyHasLooked) {
  is_known({0, 1, 2});
  EXPECT_TRUE(outcome.is_open());
  step(both);
  EXPECT_TRUE(outcome.is_open()) << "the third's is not known";
  outcome.results_gone(Flags{0, 0, 0});
  EXPECT_FALSE(outcome.is_open());
  outcome.begin();
  step(both);
  step({2});
  EXPECT_FALSE(outcome.is_open());
}

TEST_F(Outcomes, AreNotOpenInsideAStep) {
  is_known({0, 1, 2});
  outcome.optimizer(std::vector<uint64_t>{0, 1, 2}, {}, Moment::begins, false);
  outcome.begin();
  EXPECT_FALSE(outcome.is_open());
}

TEST_F(Outcomes, AreOpenWhereNoOptimizerIsKnownForWhoLooksMayFindOne) {
  outcome.begin();
  EXPECT_TRUE(outcome.is_open());
  outcome.results_gone(Flags{1, 1, 1});
  EXPECT_FALSE(outcome.is_open());
  EXPECT_EQ(forgotten(), (Flags{0, 0, 0})) << "none was found";
}

}  // namespace
}  // namespace penstock::outcome_test

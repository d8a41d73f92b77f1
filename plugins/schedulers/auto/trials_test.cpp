// Trials of assignments whose true step times are known: the assignments that are tried, the
// assignment that stays, and when all are compared again.
#include "trials.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace automatic::trials_test {
namespace {

// A network in which assignment w takes times[w], with `looks` observations. Returns the assignment
// that was in force at each observation.
std::vector<size_t> watch(Trials& trials, const std::vector<Predicted>& predicted,
                          const std::vector<double>& times, int looks, double noise = 0,
                          uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<double> error(0, 1);
  std::vector<size_t> assignments;
  for (int i = 0; i < looks; ++i) {
    assignments.push_back(trials.assignment());
    const double step = times[trials.assignment()] * (1 + noise * error(random));
    if (trials.observe(step) == Next::begin_again) trials.begin(predicted);
  }
  return assignments;
}

const std::vector<Predicted> kAssignments{{"dense", 1000}, {"topk", 50}, {"signs", 60}};

Trials begun(double slack = 0.02) {
  Trials trials(slack);
  trials.begin(kAssignments);
  return trials;
}

TEST(Trials, TryEveryWayForThreeLooksAndKeepTheShortest) {
  Trials trials = begun();
  EXPECT_EQ(watch(trials, kAssignments, {100, 60, 80}, 12),
            (std::vector<size_t>{1, 1, 1, 2, 2, 2, 0, 0, 0, 1, 1, 1}));
  EXPECT_TRUE(trials.is_settled());
}

TEST(Trials, StayDenseWhereNothingIsShorter) {
  Trials trials = begun();
  watch(trials, kAssignments, {100, 100, 101}, 9);
  EXPECT_TRUE(trials.is_settled());
  EXPECT_EQ(trials.assignment(), 0u);
}

TEST(Trials, DoNotCountTheFirstLookUnderANewPlan) {
  Trials trials = begun();
  for (double step : {1000.0, 100.0, 100.0}) trials.observe(step);
  EXPECT_EQ(trials.measured_us(1), 100);
}

TEST(Trials, TellWhatWasMeasuredAndWhatWasNot) {
  Trials trials = begun();
  watch(trials, kAssignments, {100, 60, 80}, 6);
  EXPECT_EQ(trials.measured_us(1), 60);
  EXPECT_EQ(trials.measured_us(2), 80);
  EXPECT_LT(trials.measured_us(0), 0);
  EXPECT_FALSE(trials.is_settled());
}

TEST(Trials, GoBackToDenseSoonAfterTheNetworkHasChanged) {
  Trials trials = begun();
  watch(trials, kAssignments, {100, 60, 80}, 10);
  ASSERT_EQ(trials.assignment(), 1u);
  // After three slow observations and three observations of each assignment, dense is in force; the
  // next round is not due yet.
  const std::vector<size_t> assignments = watch(trials, kAssignments, {50, 130, 140}, 25);
  size_t slow = 0;
  for (size_t assignment : assignments) slow += assignment != 0 ? 1 : 0;
  EXPECT_LE(slow, 1 + Trials::kSlowObservations + 2 * (1 + Trials::kObservations));
  EXPECT_EQ(trials.assignment(), 0u);
}

TEST(Trials, FindOutThatDenseHasBecomeShorter) {
  Trials trials = begun();
  watch(trials, kAssignments, {100, 60, 80}, 10);
  watch(trials, kAssignments, {40, 60, 80}, 2 * Trials::kFirstPatience);
  EXPECT_EQ(trials.assignment(), 0u);
}

TEST(Trials, FindOutThatDenseHasBecomeLonger) {
  Trials trials = begun();
  watch(trials, kAssignments, {100, 120, 130}, 10);
  ASSERT_EQ(trials.assignment(), 0u);
  watch(trials, kAssignments, {200, 120, 130}, 2 * Trials::kFirstPatience);
  EXPECT_EQ(trials.assignment(), 1u);
}

TEST(Trials, CompareEverMoreSeldomWhileTheAnswerStays) {
  Trials trials = begun();
  const std::vector<size_t> assignments = watch(trials, kAssignments, {100, 60, 80}, 20000);
  size_t others = 0;
  for (size_t assignment : assignments) others += assignment != 1 ? 1 : 0;
  EXPECT_LE(others, 6u * 13) << "rounds at 16, 32, ... 4096 looks and then every 4096";
  EXPECT_GE(others, 6u * 9);
}

TEST(Trials, UnderNoiseTakeWhatIsClearlyShorterAndStayWithIt) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    Trials trials = begun();
    const std::vector<size_t> assignments =
        watch(trials, kAssignments, {100, 70, 90}, 400, 0.03, seed);
    size_t best = 0;
    for (size_t assignment : assignments) best += assignment == 1 ? 1 : 0;
    EXPECT_GE(best, 300u) << "seed " << seed;
  }
}

TEST(Trials, TakeWhatIsNoTimeForNoLook) {
  Trials trials = begun();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (double step : {0.0, -1.0, std::nan(""), kInfinity, -kInfinity})
    EXPECT_EQ(trials.observe(step), Next::keep);
  EXPECT_EQ(watch(trials, kAssignments, {100, 60, 80}, 4), (std::vector<size_t>{1, 1, 1, 2}));
}

TEST(Trials, LookOnceAtAWayThatIsHopeless) {
  Trials trials = begun();
  EXPECT_EQ(watch(trials, kAssignments, {2000, 60, 80}, 10),
            (std::vector<size_t>{1, 1, 1, 2, 2, 2, 0, 1, 1, 1}));
  EXPECT_EQ(trials.measured_us(0), 2000);
}

TEST(Trials, SpendLittleOnAWayThatIsHopeless) {
  Trials trials = begun();
  const std::vector<double> times{2000, 60, 80};
  double all = 0, dense = 0;
  for (size_t assignment : watch(trials, kAssignments, times, 20000)) {
    all += times[assignment];
    dense += assignment == 0 ? times[assignment] : 0;
  }
  EXPECT_GE(dense, 3 * times[0]) << "it is looked at again";
  EXPECT_LE(dense, times[0] + Trials::kLittle * all);
}

TEST(Trials, FindOutThatAHopelessWayHasBecomeShortest) {
  Trials trials = begun();
  watch(trials, kAssignments, {1000, 60, 80}, 10);
  ASSERT_EQ(trials.assignment(), 1u);
  watch(trials, kAssignments, {20, 60, 80}, 1000);
  EXPECT_EQ(trials.assignment(), 0u);
}

TEST(Trials, LookAtAllWaysSoonAfterTheNetworkHasBecomeFaster) {
  Trials trials = begun();
  watch(trials, kAssignments, {1000, 60, 80}, 10);
  ASSERT_EQ(trials.assignment(), 1u);
  // One observation that is not counted, three shorter observations, three of each assignment.
  watch(trials, kAssignments, {20, 40, 60},
        1 + Trials::kSlowObservations + 3 * (1 + Trials::kObservations));
  EXPECT_EQ(trials.assignment(), 0u);
}

TEST(Trials, LookAgainAtWhatIsPredictedToHaveBecomeShort) {
  Trials trials = begun();
  watch(trials, kAssignments, {1000, 60, 80}, 10);
  ASSERT_EQ(trials.assignment(), 1u);
  const std::vector<Predicted> faster{{"dense", 20}, {"topk", 50}, {"signs", 60}};
  watch(trials, faster, {20, 59, 79}, 2 * Trials::kFirstPatience);
  EXPECT_EQ(trials.assignment(), 0u);
}

TEST(Trials, DoNotTakeTheMakingOfBuffersForHopeless) {
  Trials trials = begun();
  watch(trials, kAssignments, {200, 100, 120}, 7);  // the first observation of dense is in progress
  ASSERT_EQ(trials.assignment(), 0u);
  trials.begin(kAssignments);
  for (double step : {100.0, 100.0, 100.0, 390.0, 50.0, 50.0}) trials.observe(step);
  EXPECT_EQ(trials.measured_us(2), 50);
}

TEST(Trials, OfOneWaySettleOnIt) {
  Trials trials(0.02);
  trials.begin({{"dense", 100}});
  watch(trials, {{"dense", 100}}, {100}, 3);
  EXPECT_TRUE(trials.is_settled());
  EXPECT_EQ(trials.measured_us(0), 100);
}

}  // namespace
}  // namespace automatic::trials_test

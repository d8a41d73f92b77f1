// Tests when a new plan is requested: once after the profile, then only when the exposed time
// changes.
#include "planning/replanning.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace penstock::planning {
namespace {

constexpr uint32_t kKeep = PENSTOCK_KEEP_PLAN;
constexpr uint32_t kNew = PENSTOCK_MAKE_NEW_PLAN;

// A step takes 1000 us, so 50 us are noise.
penstock_measurement measured(uint64_t step, double exposed_us, double step_us = 1000) {
  penstock_measurement measurement{};
  measurement.struct_size = sizeof measurement;
  measurement.step = step;
  measurement.step_us = step_us;
  measurement.exposed_us = exposed_us;
  return measurement;
}

// After its first plan from measured times, settled at `exposed_us`.
Replanning settled(double exposed_us) {
  Replanning replanning(5, 2.0);
  EXPECT_EQ(replanning.decide(measured(5, 999)), kNew);
  replanning.plan_made();
  EXPECT_EQ(replanning.decide(measured(10, exposed_us)), kKeep);
  return replanning;
}

TEST(Replanning, AsksOnceTheProfileIsCompleteAndNotBefore) {
  Replanning replanning(5, 2.0);
  EXPECT_EQ(replanning.decide(measured(0, 500)), kKeep);
  EXPECT_EQ(replanning.decide(measured(4, 500)), kKeep);
  EXPECT_EQ(replanning.decide(measured(5, 500)), kNew);
  replanning.plan_made();
  for (uint64_t step = 10; step < 100; step += 5)
    EXPECT_EQ(replanning.decide(measured(step, 300)), kKeep) << step;
}

TEST(Replanning, ThePlanBeforeTheProfileDoesNotCountAsMeasured) {
  Replanning replanning(5, 2.0);
  replanning.plan_made();
  EXPECT_EQ(replanning.decide(measured(5, 500)), kNew);
}

TEST(Replanning, KeepsThePlanUntilTheFactorIsExceededEitherWay) {
  EXPECT_EQ(settled(300).decide(measured(15, 600)), kKeep);
  EXPECT_EQ(settled(300).decide(measured(15, 601)), kNew);
  EXPECT_EQ(settled(300).decide(measured(15, 150)), kKeep);
  EXPECT_EQ(settled(300).decide(measured(15, 149)), kNew);
}

TEST(Replanning, ComparesWithWhereThisPlanSettledAndNotTheOneBefore) {
  Replanning replanning = settled(300);
  EXPECT_EQ(replanning.decide(measured(15, 700)), kNew);
  replanning.plan_made();
  EXPECT_EQ(replanning.decide(measured(20, 700)), kKeep);
  EXPECT_EQ(replanning.decide(measured(25, 700)), kKeep);
  EXPECT_EQ(replanning.decide(measured(30, 300)), kNew);
}

// Drift in small steps is measured from the first exposed time of the plan, so it adds up.
TEST(Replanning, SlowDriftIsNoticed) {
  Replanning replanning = settled(300);
  EXPECT_EQ(replanning.decide(measured(15, 450)), kKeep);
  EXPECT_EQ(replanning.decide(measured(20, 590)), kKeep);
  EXPECT_EQ(replanning.decide(measured(25, 610)), kNew);
}

TEST(Replanning, SmallDifferencesAreNoiseWhateverTheirRatio) {
  EXPECT_EQ(settled(1).decide(measured(15, 51)), kKeep);  // 51 times, 5 % of a step
  EXPECT_EQ(settled(1).decide(measured(15, 52)), kNew);
  EXPECT_EQ(settled(0).decide(measured(15, 50)), kKeep);
  EXPECT_EQ(settled(0).decide(measured(15, 51)), kNew);
}

TEST(Replanning, BrokenTimesCountAsZero) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  for (double broken : {kNaN, kInfinity, -kInfinity, -5.0}) {
    EXPECT_EQ(settled(broken).decide(measured(15, broken)), kKeep) << broken;
    EXPECT_EQ(settled(broken).decide(measured(15, 300)), kNew) << broken;
    EXPECT_EQ(settled(1).decide(measured(15, 3, broken)), kNew) << "no step time, no noise";
  }
}

TEST(Replanning, AFirstLookFarFromTheForecastAsksAgainTwiceInARow) {
  Replanning replanning(5, 2.0);
  for (const uint32_t decision : {kNew, kNew, kKeep}) {
    replanning.plan_made(100, true);
    EXPECT_EQ(replanning.decide(measured(5, 300)), decision);
  }
  EXPECT_EQ(replanning.decide(measured(10, 300)), kKeep) << "what was seen is expected from now on";
}

TEST(Replanning, WantsAsManyLooksInARowAsItWasTold) {
  Replanning replanning(5, 2.0, 2);
  replanning.plan_made(300, true);
  for (const double exposed_us : {300.0, 900.0, 300.0, 900.0})
    EXPECT_EQ(replanning.decide(measured(5, exposed_us)), kKeep);
  EXPECT_EQ(replanning.decide(measured(5, 900)), kNew);
}

}  // namespace
}  // namespace penstock::planning

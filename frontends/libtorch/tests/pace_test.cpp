// The delay that the report of LocalSteps tells.

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "../source/apart/pace.hpp"

namespace penstock::torch {
namespace {

struct Case {
  Rotation rotation;
  std::vector<double> waits;  // seconds, for one exchange after the other; a step takes 0.4
  std::int64_t hides;
  double longest;
};

TEST(LibtorchPace, TellsTheDelayThatHidesAnExchange) {
  const std::vector<Case> cases = {{{30, 1, 0}, {9.0, 0.9, 0.5}, 4, 0.9},  // the first plans
                                   {{30, 1, 0}, {9.0, 0.01}, 0, 0.01},
                                   {{30, 3, 0}, {9.0, 9.0, 9.0, 0.9}, 4, 0.9},
                                   {{30, 1, 3}, {9.0, 0.0, 0.01}, 3, 0.01},
                                   {{30, 1, 3}, {9.0, 0.0, 0.5}, 5, 0.5}};
  for (const Case& one : cases) {
    Pace pace(one.rotation);
    EXPECT_FALSE(pace.report());
    double now = 0;
    for (const double wait : one.waits) {
      pace.step_begins(now);
      pace.step_ends(now += 0.4);
      pace.waited(wait);
      now += wait;  // which is no part of a step
    }
    const auto told = pace.report();
    ASSERT_TRUE(told);
    EXPECT_EQ(told->delay_that_hides, one.hides);
    EXPECT_NEAR(told->step, 0.4, 1e-9);
    EXPECT_EQ(told->wait, one.longest);
  }
}

TEST(LibtorchPace, OnlyTheLastEightExchangesCount) {
  Pace pace(Rotation(30, 1, 0));
  for (const double wait : {0.0, 5.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0}) {
    pace.step_begins(0);
    pace.step_ends(2);
    pace.waited(wait);
  }
  EXPECT_EQ(pace.report()->wait, 1.0);
}

}  // namespace
}  // namespace penstock::torch

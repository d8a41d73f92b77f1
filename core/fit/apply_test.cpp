// A mean is applied one step late only where the frontend can do that, and where nothing else gives
// the exchange the time of the next forward.
#include "core/fit/rules.hpp"

#include <gtest/gtest.h>
#include <penstock/runtime.h>

namespace penstock::apply_test {
namespace {

FitInput late_input() {
  FitInput input;
  input.collective = {"mpi", PENSTOCK_COLLECTIVE_TRANSPORT, ~uint64_t{0},
                      uint64_t{1} << PENSTOCK_DEVICE_CPU};
  input.scheduler = {"fusion", uint64_t{1} << PENSTOCK_ROUTE_FLAT, 0};
  input.frontend = PENSTOCK_SET_PREVIOUS_UPDATE | PENSTOCK_SET_DEFERRED_UPDATE;
  input.applies_previous = true;
  return input;
}

std::string refusal(const FitInput& input) {
  return std::string(check_fit(input).status().message());
}

TEST(Apply, OneStepLateFitsAFrontendThatCanDoIt) {
  EXPECT_EQ(refusal(late_input()), "");
}

TEST(Apply, OneStepLateIsRefusedForOtherFrontends) {
  FitInput input = late_input();
  input.frontend = PENSTOCK_SET_DEFERRED_UPDATE;
  EXPECT_NE(refusal(input).find("scheme.apply = \"previous\""), std::string::npos);
  EXPECT_NE(refusal(input).find("DistributedOptimizer of penstock.torch"), std::string::npos);
  input.applies_previous = false;
  EXPECT_EQ(refusal(input), "");
}

TEST(Apply, OneStepLateIsRefusedWithASchedulerThatWorksInTheNextForward) {
  FitInput input = late_input();
  input.scheduler.name = "dear";
  input.scheduler.flags = PENSTOCK_SCHEDULER_LAUNCHES_IN_FORWARD;
  EXPECT_NE(refusal(input).find("scheduler \"dear\""), std::string::npos);
  EXPECT_NE(refusal(input).find("remove the key"), std::string::npos);
  input.applies_previous = false;
  EXPECT_EQ(refusal(input), "");
}

}  // namespace
}  // namespace penstock::apply_test

// The rules for a legal plan, and the plan as bytes for the other ranks.
#include "core/plan/plan.hpp"

#include <gtest/gtest.h>

#include <functional>

namespace penstock::plan_test {
namespace {

// Three gradients of 10, 4 and 0 elements. Only the first may be cut, at multiples of 2.
PlanFacts facts() {
  const auto candidate = [](uint64_t alignment) {
    return PlanFacts::Candidate{alignment, ~uint64_t{0}, true};
  };
  PlanFacts facts{{10, 4, 0},
                  {"a", "b", "empty"},
                  {{candidate(2)}, {candidate(0), candidate(0)}, {candidate(0)}},
                  {PENSTOCK_NO_BUCKET, PENSTOCK_NO_BUCKET, PENSTOCK_NO_BUCKET}};
  facts.forward_waits = true;
  facts.offered = 1 << PENSTOCK_ROUTE_FLAT | 1 << PENSTOCK_ROUTE_SPLIT | 1 << PENSTOCK_ROUTE_SHARD;
  return facts;
}

// Two buckets: half of a; the other half of a, b and the empty gradient. Messages in reverse order.
Plan good_plan() {
  Plan plan;
  plan.buckets.push_back({{{0, 0, 4, 0}}, PENSTOCK_ROUTE_FLAT, 0, PENSTOCK_LAUNCH_READY});
  plan.buckets.push_back(
      {{{0, 4, 6, 0}, {1, 0, 4, 1}, {2, 0, 0, 0}}, PENSTOCK_ROUTE_SPLIT, 0, PENSTOCK_LAUNCH_READY});
  plan.messages = {{0, 1, 0, 0}, {0, 1, 1, 0}, {0, 0, 0, 0}, {0, 0, 0, 1}};
  plan.explanation = {"why", "because"};
  return plan;
}

struct Fault {
  const char* expected;
  std::function<void(Plan&)> make;
};

TEST(CheckPlan, TakesWhatIsLegal) {
  const Status status = check_plan(good_plan(), facts(), "test");
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(CheckPlan, NamesTheSchedulerAndWhatIsWrong) {
  const Fault faults[] = {
      {"planned 2 phases, the compressors have 1", [](Plan& p) { p.period = 2; }},
      {"bucket for phase 1 of 1", [](Plan& p) { p.buckets[0].phase = 1; }},
      {"empty bucket", [](Plan& p) { p.buckets[0].pieces.clear(); }},
      {"gradient 3, but there are only 3", [](Plan& p) { p.buckets[0].pieces[0].gradient = 3; }},
      {"candidate 2 for gradient 'b'", [](Plan& p) { p.buckets[1].pieces[1].choice = 2; }},
      {"elements [8, +4) of gradient 'a', which has 10",
       [](Plan& p) { p.buckets[0].pieces[0].first = 8; }},
      {"allows multiples of 2",
       [](Plan& p) {
         p.buckets[1].pieces[0] = {0, 5, 5, 0};
       }},
      {"allows no cuts",
       [](Plan& p) {
         p.buckets[1].pieces[1] = {1, 1, 3, 0};
       }},
      {"element 2 of gradient 'a' twice",
       [](Plan& p) {
         p.buckets[1].pieces[0] = {0, 2, 8, 0};
       }},
      {"element 4 of gradient 'a' nowhere",
       [](Plan& p) {
         p.buckets[1].pieces[0] = {0, 6, 4, 0};
       }},
      {"only 8 of 10 elements", [](Plan& p) { p.buckets[1].pieces[0].numel = 4; }},
      {"empty gradient 'empty' twice",
       [](Plan& p) {
         p.buckets[0].pieces.push_back({2, 0, 0, 0});
       }},
      {"left gradient 'b' out",
       [](Plan& p) { p.buckets[1].pieces.erase(++p.buckets[1].pieces.begin()); }},
      {"bucket 2 in phase 0, which its plan does not have", [](Plan& p) { p.messages[0][1] = 2; }},
      {"in phase 1, which its plan does not have", [](Plan& p) { p.messages[0][0] = 1; }},
      {"its describe does not name that route",
       [](Plan& p) { p.buckets[1].route = PENSTOCK_ROUTE_HIERARCHICAL; }},
      {"unknown route 7", [](Plan& p) { p.buckets[0].route = 7; }},
      {"that bucket's route has 1 leg", [](Plan& p) { p.messages[2][2] = 1; }},
      {"that bucket's route has 2 legs", [](Plan& p) { p.messages[1][2] = 2; }},
      {"leg 1, round 0 of bucket 1 in phase 0 twice",
       [](Plan& p) { p.messages.push_back(p.messages[1]); }},
  };
  for (const Fault& fault : faults) {
    Plan plan = good_plan();
    fault.make(plan);
    const Status status = check_plan(plan, facts(), "test");
    EXPECT_EQ(status.code(), Code::internal) << fault.expected;
    EXPECT_NE(status.message().find(fault.expected), std::string_view::npos) << status.message();
    EXPECT_TRUE(status.message().starts_with("scheduler 'test'")) << status.message();
  }
}

struct Misfit {
  const char* expected;
  std::function<void(Plan&, PlanFacts&)> make;
};

TEST(CheckPlan, RefusesWhatWouldLoseMassOrCannotRun) {
  const Misfit misfits[] = {
      {"left gradient 'b' out of phase 1, but its memory keeps nothing",
       [](Plan& plan, PlanFacts& facts) {
         plan.period = facts.period = 2;
         plan.buckets.push_back(plan.buckets[1]);
         plan.buckets.back().phase = 1;
         plan.buckets.back().pieces = {{0, 0, 10, 0}, {2, 0, 0, 0}};
         for (auto& candidate : facts.candidates[1]) candidate.keeps = false;
       }},
      {"sends gradient 'a' by routes 1 and 4, which have separate memories",
       [](Plan& plan, PlanFacts&) { plan.buckets[1].route = PENSTOCK_ROUTE_SHARD; }},
      {"planned route 2 for gradient 'b', which its compressor and memory cannot take",
       [](Plan&, PlanFacts& facts) { facts.candidates[1][1].routes = 1 << PENSTOCK_ROUTE_FLAT; }},
      {"leaves leg 1 of a route for the next forward",
       [](Plan&, PlanFacts& facts) { facts.forward_waits = false; }},
      {"puts gradients 'a' and 'b' into one bucket",
       [](Plan& plan, PlanFacts& facts) {
         plan.buckets.erase(plan.buckets.begin());
         plan.messages.clear();
         plan.buckets[0].pieces[0] = {0, 0, 10, 0};
         facts.buckets_are_given = true;
         facts.given_buckets = {0, 1, 1};
       }},
      {"puts 1 gradients of the frontend's bucket 0, which has 3, into another bucket",
       [](Plan&, PlanFacts& facts) {
         facts.buckets_are_given = true;
         facts.given_buckets = {0, 0, 0};
       }},
  };
  for (const Misfit& misfit : misfits) {
    Plan plan = good_plan();
    PlanFacts its_facts = facts();
    misfit.make(plan, its_facts);
    const Status status = check_plan(plan, its_facts, "test");
    EXPECT_EQ(status.code(), Code::failed_precondition) << misfit.expected;
    EXPECT_NE(status.message().find(misfit.expected), std::string_view::npos) << status.message();
  }
}

TEST(PlanBytes, GiveThePlanBack) {
  const Plan plan = good_plan();
  const Result<Plan> again = plan_from_bytes(plan_bytes(plan));
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again.value(), plan);
  EXPECT_EQ(again.value().explanation, plan.explanation);
}

TEST(PlanBytes, CutOffAnywhereAreRefused) {
  const std::string bytes = plan_bytes(good_plan());
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(plan_from_bytes(bytes.substr(0, size)).ok()) << size;
  EXPECT_FALSE(plan_from_bytes(bytes + '\0').ok());
}

}  // namespace
}  // namespace penstock::plan_test

// WFBP: one bucket for each gradient, in order of readiness.
#include <support/scheduling.hpp>

namespace penstock::test {
namespace {

TEST(Wfbp, KeepsTheRulesOfEveryScheduler) {
  expect_the_common_rules(PENSTOCK_PLUGIN_FILE);
}

TEST(Wfbp, LeavesGivenBucketsWhole) {
  expect_given_buckets_stay_together(PENSTOCK_PLUGIN_FILE);
}

TEST(Wfbp, RefusesAbsurdModels) {
  expect_absurd_models_are_refused(PENSTOCK_PLUGIN_FILE);
}

TEST(Wfbp, SendsEachGradientAloneInOrderOfReadiness) {
  planning::ModelEntries entries = awkward_model(4);
  entries.order = {2, 3, 0, 1};
  const planning::Plan plan =
      plan_of(make_scheduler(PENSTOCK_PLUGIN_FILE), planning::OwnedModel(entries));
  EXPECT_EQ(gradients_of(plan), (std::vector<std::vector<uint64_t>>{{2}, {3}, {0}, {1}}));
  for (const planning::Bucket& bucket : plan.buckets) {
    EXPECT_EQ(bucket.launch, uint32_t{PENSTOCK_LAUNCH_READY});
    EXPECT_EQ(bucket.route, uint32_t{PENSTOCK_ROUTE_FLAT});
  }
}

TEST(Wfbp, TakesTheRouteThatTheSchemeAsksFor) {
  planning::ModelEntries entries = awkward_model(2);
  entries.route = PENSTOCK_ROUTE_HIERARCHICAL;
  const planning::Plan plan =
      plan_of(make_scheduler(PENSTOCK_PLUGIN_FILE), planning::OwnedModel(entries));
  EXPECT_EQ(plan.buckets[0].route, uint32_t{PENSTOCK_ROUTE_HIERARCHICAL});
}

TEST(Wfbp, NeitherMeasuresNorWaitsInForward) {
  const penstock_scheduler_traits traits = traits_of(make_scheduler(PENSTOCK_PLUGIN_FILE));
  EXPECT_EQ(traits.flags, 0u);
  EXPECT_EQ(traits.observe_every, 0u);
  EXPECT_NE(traits.routes & planning::route_bit(PENSTOCK_ROUTE_FLAT), 0u);
  EXPECT_EQ(traits.routes & planning::route_bit(PENSTOCK_ROUTE_SPLIT), 0u);
}

}  // namespace
}  // namespace penstock::test

// SyncEA: one bucket for all gradients, once backward is over.
#include <planning/forecast.hpp>
#include <support/scheduling.hpp>

namespace penstock::test {
namespace {

using Buckets = std::vector<std::vector<uint64_t>>;

planning::Plan planned(const planning::ModelEntries& entries) {
  const planning::OwnedModel owned(entries);
  const planning::Plan plan = plan_of(make_scheduler(PENSTOCK_PLUGIN_FILE), owned);
  expect_legal(plan, owned.model());
  for (const planning::Bucket& bucket : plan.buckets)
    EXPECT_EQ(bucket.launch, uint32_t{PENSTOCK_LAUNCH_SET_COMPLETE});
  return plan;
}

TEST(SyncEa, KeepsTheRulesOfEveryScheduler) {
  expect_the_common_rules(PENSTOCK_PLUGIN_FILE);
  expect_absurd_models_are_refused(PENSTOCK_PLUGIN_FILE);
}

TEST(SyncEa, SendsAllGradientsInOneBucketInOrderOfReadiness) {
  planning::ModelEntries entries = awkward_model(4);
  entries.order = {2, 3, 0, 1};
  EXPECT_EQ(gradients_of(planned(entries)), (Buckets{{2, 3, 0, 1}}));
  EXPECT_EQ(counts_of(planned(awkward_model(500))), (std::vector<uint64_t>{500}));
}

TEST(SyncEa, EachPhaseHasOneBucketOfWhatItSends) {
  planning::ModelEntries entries = awkward_model(4);
  entries.period = 3;
  const std::vector<uint64_t> bytes[4] = {{4, 0, 0}, {4, 0, 4}, {0, 0, 4}, {0, 0, 0}};
  for (size_t i = 0; i < 4; ++i) entries.gradients[i].candidates[0].phase_bytes = bytes[i];
  const planning::Plan plan = planned(entries);
  EXPECT_EQ(gradients_of(plan, 0), (Buckets{{3, 1, 0}}));
  EXPECT_TRUE(gradients_of(plan, 1).empty()) << "a bucket without gradients";
  EXPECT_EQ(gradients_of(plan, 2), (Buckets{{2, 1}}));
}

// Given buckets may neither be joined nor sent early. They all wait for the end of backward.
TEST(SyncEa, GivenBucketsStayWholeAndAloneAndWaitAsWell) {
  expect_given_buckets_stay_together(PENSTOCK_PLUGIN_FILE);
  planning::ModelEntries entries = awkward_model(4);
  entries.flags |= PENSTOCK_MODEL_GIVEN_BUCKETS;
  for (size_t i = 0; i < 4; ++i) entries.gradients[i].given_bucket = i < 2 ? 1 : 0;
  const planning::Plan plan = planned(entries);
  EXPECT_EQ(gradients_of(plan), (Buckets{{3, 2}, {1, 0}}));
  EXPECT_NE(plan.explanation[0].find("as the frontend gave them"), std::string::npos);
}

// Two gradients of 100 bytes, ready at 10 and 40; a message takes 5 us and 1 us per byte: forward
// waits for the whole 205 us.
TEST(SyncEa, NothingHidesBehindBackward) {
  planning::ModelEntries entries;
  entries.gradients = {planning::dense_gradient("a", 25, 40),
                       planning::dense_gradient("b", 25, 10)};
  entries.links = {{5, 1, PENSTOCK_LEVEL_WORLD}};
  entries.backward_us = 40;
  entries.flags = PENSTOCK_MODEL_MEASURED;
  const planning::OwnedModel owned(entries);
  const planning::Plan plan = planned(entries);
  EXPECT_EQ(planning::exposed_us(plan, owned.model()), 205);
  EXPECT_NE(plan.explanation[0].find("205 us exposed"), std::string::npos) << plan.explanation[0];
}

TEST(SyncEa, TakesTheRouteThatTheSchemeAsksFor) {
  planning::ModelEntries entries = awkward_model(2);
  EXPECT_EQ(planned(entries).buckets[0].route, uint32_t{PENSTOCK_ROUTE_FLAT});
  entries.route = PENSTOCK_ROUTE_SHARD;
  EXPECT_EQ(planned(entries).buckets[0].route, uint32_t{PENSTOCK_ROUTE_SHARD});
}

TEST(SyncEa, NeitherMeasuresNorWaitsInForward) {
  const penstock_scheduler_traits traits = traits_of(make_scheduler(PENSTOCK_PLUGIN_FILE));
  EXPECT_EQ(traits.flags, 0u);
  EXPECT_EQ(traits.observe_every, 0u);
  EXPECT_EQ(traits.routes & planning::route_bit(PENSTOCK_ROUTE_SPLIT), 0u);
}

}  // namespace
}  // namespace penstock::test

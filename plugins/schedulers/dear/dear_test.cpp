// DeAR: groups of modules in forward order, planned in the order in which backward completes them.
#include <support/scheduling.hpp>

namespace penstock::test {
namespace {

using Buckets = std::vector<std::vector<uint64_t>>;

// Four modules in forward order, sizes in bytes 40 + 8, 40, 20 + 4, 100.
planning::ModelEntries four_modules() {
  planning::ModelEntries entries;
  entries.gradients = {
      planning::dense_gradient("a.weight", 10), planning::dense_gradient("a.bias", 2),
      planning::dense_gradient("b.weight", 10), planning::dense_gradient("c.weight", 5),
      planning::dense_gradient("c.bias", 1),    planning::dense_gradient("d.weight", 25)};
  entries.flags = PENSTOCK_MODEL_FORWARD_WAITS;
  return entries;
}

Buckets groups(const planning::ModelEntries& entries, int threshold_bytes) {
  const SchedulerInstance scheduler =
      make_scheduler(PENSTOCK_PLUGIN_FILE, {{"threshold_bytes", threshold_bytes}});
  const planning::OwnedModel owned(entries);
  const planning::Plan plan = plan_of(scheduler, owned);
  expect_legal(plan, owned.model());
  return gradients_of(plan);
}

TEST(Dear, KeepsTheRulesOfEveryScheduler) {
  for (int threshold : {0, 1, 4096, 1 << 30})
    expect_the_common_rules(PENSTOCK_PLUGIN_FILE, {{"threshold_bytes", threshold}});
}

TEST(Dear, LeavesGivenBucketsWhole) {
  expect_given_buckets_stay_together(PENSTOCK_PLUGIN_FILE);
}

TEST(Dear, RefusesAbsurdModels) {
  expect_absurd_models_are_refused(PENSTOCK_PLUGIN_FILE);
}

TEST(Dear, GroupsModulesInForwardOrderAndPlansTheLastFirst) {
  EXPECT_EQ(groups(four_modules(), 100), (Buckets{{5}, {3, 4}, {0, 1, 2}}));
  EXPECT_EQ(groups(four_modules(), 64), (Buckets{{5}, {2, 3, 4}, {0, 1}}));
  EXPECT_EQ(groups(four_modules(), 1 << 20), (Buckets{{0, 1, 2, 3, 4, 5}}));
}

TEST(Dear, NeverDividesAModule) {
  EXPECT_EQ(groups(four_modules(), 0), (Buckets{{5}, {3, 4}, {2}, {0, 1}}));
  EXPECT_EQ(groups(four_modules(), 1), (Buckets{{5}, {3, 4}, {2}, {0, 1}}));
}

TEST(Dear, NamesWithoutModuleStandAlone) {
  planning::ModelEntries entries = four_modules();
  for (planning::GradientEntry& gradient : entries.gradients) gradient.name = "flat";
  EXPECT_EQ(groups(entries, 0).size(), 6u);
}

TEST(Dear, FollowsMeasuredForwardTimesAndMeasuredBackwardOrder) {
  planning::ModelEntries entries = four_modules();
  // d is used first, then a, b, c; backward ends with d.
  const double forward[6] = {10, 10, 20, 30, 30, 0};
  for (size_t i = 0; i < 6; ++i) entries.gradients[i].forward_us = forward[i];
  entries.order = {4, 3, 2, 1, 0, 5};
  entries.flags |= PENSTOCK_MODEL_MEASURED;
  EXPECT_EQ(groups(entries, 48), (Buckets{{3, 4}, {2}, {0, 1}, {5}}));
}

TEST(Dear, EveryBucketTakesTheSplitRoute) {
  const planning::Plan plan =
      plan_of(make_scheduler(PENSTOCK_PLUGIN_FILE), planning::OwnedModel(four_modules()));
  ASSERT_FALSE(plan.buckets.empty());
  for (const planning::Bucket& bucket : plan.buckets) {
    EXPECT_EQ(bucket.route, uint32_t{PENSTOCK_ROUTE_SPLIT});
    EXPECT_EQ(bucket.launch, uint32_t{PENSTOCK_LAUNCH_READY});
  }
  const penstock_scheduler_traits traits = traits_of(make_scheduler(PENSTOCK_PLUGIN_FILE));
  EXPECT_EQ(traits.routes, planning::route_bit(PENSTOCK_ROUTE_SPLIT));
  EXPECT_EQ(traits.flags, uint32_t{PENSTOCK_SCHEDULER_LAUNCHES_IN_FORWARD});
}

TEST(Dear, AllReduceScattersGoBeforeAllGathersWhichFollowForward) {
  const SchedulerInstance scheduler =
      make_scheduler(PENSTOCK_PLUGIN_FILE, {{"threshold_bytes", 100}});
  planning::ModelEntries entries = four_modules();
  entries.period = 2;
  for (planning::GradientEntry& gradient : entries.gradients)
    gradient.candidates[0].phase_bytes = {gradient.bytes, gradient.bytes};
  entries.gradients[5].candidates[0].phase_bytes = {100, 0};
  const planning::Plan plan = plan_of(scheduler, planning::OwnedModel(entries));
  const std::vector<planning::MessagePlace> expected = {
      {0, 0, 0, 0}, {0, 1, 0, 0}, {0, 2, 0, 0}, {0, 2, 1, 0}, {0, 1, 1, 0},
      {0, 0, 1, 0}, {1, 0, 0, 0}, {1, 1, 0, 0}, {1, 1, 1, 0}, {1, 0, 1, 0}};
  EXPECT_EQ(plan.messages, expected);
}

TEST(Dear, ASinkWithoutMessagesGetsTheBuckets) {
  const planning::OwnedModel owned(four_modules());
  const SchedulerInstance scheduler = make_scheduler(PENSTOCK_PLUGIN_FILE);
  planning::PlanRecorder recorder;
  penstock_plan_sink sink = *recorder.sink();
  sink.add_message = nullptr;
  PENSTOCK_EXPECT_OK(scheduler.table().plan(scheduler.self(), &owned.model(), &sink));
  EXPECT_EQ(recorder.plan().buckets.size(), 1u);
}

TEST(Dear, RefusesAnotherRoute) {
  planning::ModelEntries entries = four_modules();
  entries.route = PENSTOCK_ROUTE_FLAT;
  const planning::OwnedModel owned(entries);
  const SchedulerInstance scheduler = make_scheduler(PENSTOCK_PLUGIN_FILE);
  planning::PlanRecorder recorder;
  EXPECT_TRUE(fails_with(scheduler.table().plan(scheduler.self(), &owned.model(), recorder.sink()),
                         PENSTOCK_INVALID_ARGUMENT, "route 1"));
}

// A step that takes as long as its number of groups.
TEST(Dear, AutotuneFindsTheThresholdThatMakesTheShortestStep) {
  const planning::OwnedModel owned(four_modules());
  const SchedulerInstance scheduler =
      make_scheduler(PENSTOCK_PLUGIN_FILE, {{"threshold_bytes", 64}, {"autotune", true}});
  EXPECT_EQ(traits_of(scheduler).flags,
            uint32_t{PENSTOCK_SCHEDULER_LAUNCHES_IN_FORWARD | PENSTOCK_SCHEDULER_MEASURES});
  planning::Plan plan = plan_of(scheduler, owned);
  EXPECT_EQ(gradients_of(plan).size(), 3u);
  for (uint64_t look = 1; look <= 60; ++look) {
    penstock_measurement measurement{};
    measurement.struct_size = sizeof measurement;
    measurement.step = 5 * look;
    measurement.n_steps = 5;
    measurement.step_us = 1000.0 * double(plan.buckets.size());
    uint32_t decision = 99;
    ASSERT_TRUE(succeeds(scheduler.table().observe(scheduler.self(), &measurement, &decision)));
    if (decision == PENSTOCK_MAKE_NEW_PLAN) plan = plan_of(scheduler, owned);
  }
  EXPECT_EQ(gradients_of(plan), (Buckets{{0, 1, 2, 3, 4, 5}}));
  EXPECT_NE(plan.explanation.at(0).find("1000 us a step, 3000 us as configured"), std::string::npos)
      << plan.explanation.at(0);
}

TEST(Dear, RefusesToTuneAThresholdOfZero) {
  try {
    make_scheduler(PENSTOCK_PLUGIN_FILE, {{"threshold_bytes", 0}, {"autotune", true}});
    ADD_FAILURE() << "it was made";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("threshold_bytes is 0"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace penstock::test

// RGMerge: the best of all cuts, its explanation, and the requests for new plans.
#include <support/scheduling.hpp>

#include <planning/cost.hpp>
#include <planning/forecast.hpp>

#include <chrono>
#include <random>

namespace penstock::test {
namespace {

using Counts = std::vector<uint64_t>;

// `n` gradients of 25 elements, one every 10 us, without cost of encoding. The link has `alpha` and
// 0.1 us per byte, so the bytes of one gradient take 10 us.
planning::ModelEntries steady(uint64_t n, double alpha) {
  planning::ModelEntries entries;
  for (uint64_t i = 0; i < n; ++i)
    entries.gradients.push_back(
        planning::dense_gradient("g" + std::to_string(i), 25, 10.0 * static_cast<double>(i + 1)));
  for (uint64_t i = 0; i < n; ++i) entries.order.push_back(i);
  entries.links = {{alpha, 0.1, PENSTOCK_LEVEL_WORLD}};
  entries.world = 2;
  entries.flags = PENSTOCK_MODEL_MEASURED;
  return entries;
}

planning::Plan planned(const planning::ModelEntries& entries, const OptionSettings& settings = {}) {
  const planning::OwnedModel owned(entries);
  const planning::Plan plan = plan_of(make_scheduler(PENSTOCK_PLUGIN_FILE, settings), owned);
  expect_legal(plan, owned.model());
  return plan;
}

TEST(Rgmerge, KeepsTheRulesOfEveryScheduler) {
  expect_the_common_rules(PENSTOCK_PLUGIN_FILE);
  expect_the_common_rules(PENSTOCK_PLUGIN_FILE, {{"unmeasured_count", 1}});
}

TEST(Rgmerge, LeavesGivenBucketsWhole) {
  expect_given_buckets_stay_together(PENSTOCK_PLUGIN_FILE);
}

TEST(Rgmerge, RefusesAbsurdModels) {
  expect_absurd_models_are_refused(PENSTOCK_PLUGIN_FILE);
}

TEST(Rgmerge, TakesEqualNumbersBeforeAnythingIsMeasured) {
  planning::ModelEntries entries = steady(10, 5);
  entries.flags = 0;
  EXPECT_EQ(counts_of(planned(entries, {{"unmeasured_count", 4}})), (Counts{4, 4, 2}));
}

// ---- The planner ----

// A message takes 10 per gradient and has no start-up. So each gradient is sent at once when it is
// ready, and the last message ends 10 after backward. A larger last message takes longer.
TEST(Rgmerge, SendsEachGradientAloneWhereStartingCostsNothing) {
  EXPECT_EQ(counts_of(planned(steady(6, 0))), (Counts{1, 1, 1, 1, 1, 1}));
}

// A start-up takes 1000, so any earlier message would keep the link busy long past the end of
// backward.
TEST(Rgmerge, SendsAllInOneWhereStartingCostsMoreThanBackward) {
  EXPECT_EQ(counts_of(planned(steady(6, 1000))), (Counts{6}));
}

// alpha 5: separate messages take 15 each, and the last ends at 70. Two and two take 25 each, from
// 20 to 70. One, one and two: from 10 to 25, from 25 to 40, and from 40, when the last is ready, to
// 65.
TEST(Rgmerge, BalancesWaitingAgainstStarting) {
  EXPECT_EQ(counts_of(planned(steady(4, 5))), (Counts{1, 1, 2}));
}

// Gradients come slowly, then fast: many gradients become ready during the first message, and go
// together.
TEST(Rgmerge, TakesAsManyAsComeWhileTheBufferBeforeIsSent) {
  planning::ModelEntries entries = steady(9, 20);
  for (size_t i = 1; i < 9; ++i)
    entries.gradients[i].ready_us = 10.0 + 3.0 * static_cast<double>(i);
  const Counts counts = counts_of(planned(entries));
  ASSERT_GE(counts.size(), 2u);
  EXPECT_LT(counts.front(), counts.back());
}

// Against all cuts of up to nine gradients, with times that double adds up exactly.
TEST(Rgmerge, NoCutEndsSooner) {
  std::mt19937 random(7);
  const auto pick = [&](int low, int high) {
    return static_cast<double>(std::uniform_int_distribution<int>(low, high)(random));
  };
  for (int repeat = 0; repeat < 300; ++repeat) {
    const auto n = static_cast<uint64_t>(pick(1, 9));
    planning::ModelEntries entries = steady(n, pick(0, 60));
    entries.links[0].beta_us_per_byte = 0.125;
    double ready = 0;
    const double fixed = pick(0, 20);
    for (planning::GradientEntry& gradient : entries.gradients) {
      gradient.ready_us = ready += pick(0, 30);
      gradient.shape = {static_cast<int64_t>(pick(1, 90))};
      gradient.candidates[0].phase_bytes = {static_cast<uint64_t>(gradient.shape[0]) * 4};
      gradient.candidates[0].encode_fixed_us = fixed;
      gradient.candidates[0].encode_per_element_us = 0.25;
    }
    const planning::OwnedModel owned(entries);
    const auto ends = [&](const std::vector<std::vector<uint64_t>>& buckets) {
      double engine = 0, link = 0;
      for (const std::vector<uint64_t>& bucket : buckets) {
        double encode = fixed, bytes = 0;
        for (uint64_t i : bucket) {
          encode += 0.25 * static_cast<double>(entries.gradients[i].shape[0]);
          bytes += 4 * static_cast<double>(entries.gradients[i].shape[0]);
          engine = std::max(engine, entries.gradients[i].ready_us);
        }
        engine += encode;
        link = std::max(link, engine) + entries.links[0].alpha_us + 0.125 * bytes;
      }
      return link;
    };
    double best = -1;
    for (uint32_t cuts = 0; cuts < (1u << (n - 1)); ++cuts) {
      std::vector<std::vector<uint64_t>> buckets;
      for (uint64_t i = 0; i < n; ++i) {
        if (i == 0 || ((cuts >> (i - 1)) & 1) != 0) buckets.emplace_back();
        buckets.back().push_back(i);
      }
      const double end = ends(buckets);
      best = best < 0 ? end : std::min(best, end);
    }
    const planning::Plan plan =
        plan_of(make_scheduler(PENSTOCK_PLUGIN_FILE, {{"caution", 1.0}}), owned);
    EXPECT_EQ(ends(gradients_of(plan)), best) << "model " << repeat;
  }
}

// The link is free at 30. The second gradient is ready at 10 and encoded in 20, so it is just in
// time by the measurement. Cautiously it counts as late, so the gradients that are ready are sent
// alone.
TEST(Rgmerge, DoesNotPlanOnEncodingBeingInTimeToTheMicrosecond) {
  planning::ModelEntries entries = steady(3, 1);
  entries.gradients[0].ready_us = 0;
  entries.gradients[1].ready_us = entries.gradients[2].ready_us = 1;
  for (planning::GradientEntry& gradient : entries.gradients)
    gradient.candidates[0].encode_per_element_us = 0.2;  // 5 us
  EXPECT_EQ(counts_of(planned(entries, {{"caution", 1.0}})), (Counts{1, 2}));
  EXPECT_EQ(counts_of(planned(entries, {{"caution", 1.5}})), (Counts{1, 1, 1}));
}

TEST(Rgmerge, OfManyGradientsNeighboursStayTogether) {
  const planning::Plan plan = planned(steady(1000, 0));
  EXPECT_LE(plan.buckets.size(), 192u);
  EXPECT_GE(plan.buckets.size(), 150u);
}

// ---- The explanation ----

TEST(Rgmerge, ExplainsEveryMergePhase) {
  const planning::Plan plan = planned(steady(4, 5));
  ASSERT_EQ(plan.explanation.size(), 4u);
  EXPECT_EQ(plan.explanation[0],
            "rgmerge: phase 0: gradients per buffer 1, 1, 2; forecast: backward 40 us, then 25 us "
            "exposed; sending takes 55 us");
  EXPECT_EQ(plan.explanation[1],
            "  buffer 0: 1 gradients collected from 0 to 10 us, encoded until 10, sent from 10 to "
            "25, under backward");
  EXPECT_EQ(plan.explanation[2],
            "  buffer 1: 1 gradients collected from 10 to 20 us, encoded until 20, sent from 25 to "
            "40, under backward, after 5 us for the buffer before it");
  EXPECT_EQ(plan.explanation[3],
            "  buffer 2: 2 gradients collected from 20 to 40 us, encoded until 40, sent from 40 to "
            "65, 25 us of it after backward");
}

// ---- Observation ----

class Observed {
 public:
  explicit Observed(const OptionSettings& settings = {})
      : scheduler_(make_scheduler(PENSTOCK_PLUGIN_FILE, settings)) {}

  // The plan's forecast is 25 us of 65.
  void plan(bool measured) {
    planning::ModelEntries entries = steady(4, 5);
    if (!measured) entries.flags = 0;
    plan_of(scheduler_, planning::OwnedModel(entries));
  }
  uint32_t look(double exposed_us) {
    step_ += 5;
    penstock_measurement measurement{};
    measurement.struct_size = sizeof measurement;
    measurement.step = step_;
    measurement.step_us = 100;
    measurement.exposed_us = exposed_us;
    uint32_t decision = 99;
    EXPECT_TRUE(succeeds(scheduler_.table().observe(scheduler_.self(), &measurement, &decision)));
    return decision;
  }

 private:
  SchedulerInstance scheduler_;
  uint64_t step_ = 0;
};

constexpr uint32_t kKeep = PENSTOCK_KEEP_PLAN, kNew = PENSTOCK_MAKE_NEW_PLAN;

TEST(Rgmerge, PlansAgainOnceTimesAreMeasured) {
  Observed observed;
  observed.plan(false);
  EXPECT_EQ(observed.look(50), kNew);
}

TEST(Rgmerge, KeepsAPlanWhoseExposedTimeIsAsForecast) {
  Observed observed;
  observed.plan(true);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(observed.look(30 + i % 3), kKeep);
}

TEST(Rgmerge, PlansAgainWhenTheExposedTimeHasLeftWhatWasExpectedForTwoLooks) {
  Observed observed;
  observed.plan(true);
  EXPECT_EQ(observed.look(30), kKeep);
  EXPECT_EQ(observed.look(60), kKeep);  // once may be by chance
  EXPECT_EQ(observed.look(31), kKeep);
  EXPECT_EQ(observed.look(60), kKeep);
  EXPECT_EQ(observed.look(60), kNew);
}

TEST(Rgmerge, AlsoWhenLessIsExposedThanExpected) {
  Observed observed({{"replan_observations", 1}});
  observed.plan(true);
  EXPECT_EQ(observed.look(30), kKeep);
  EXPECT_EQ(observed.look(10), kNew);
}

TEST(Rgmerge, ADifferenceBelowATwentiethOfAStepIsNoise) {
  Observed observed({{"replan_observations", 1}});
  observed.plan(true);
  EXPECT_EQ(observed.look(30), kKeep);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(observed.look(34), kKeep);
}

TEST(Rgmerge, AForecastThatStaysWrongDoesNotAskForPlansForEver) {
  Observed observed;
  observed.plan(true);
  EXPECT_EQ(observed.look(90), kNew);
  observed.plan(true);
  EXPECT_EQ(observed.look(90), kNew);
  observed.plan(true);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(observed.look(90), kKeep);
}

TEST(Rgmerge, AbsurdMeasurementsChangeNothing) {
  Observed observed({{"replan_observations", 1}});
  observed.plan(true);
  EXPECT_EQ(observed.look(30), kKeep);
  EXPECT_EQ(observed.look(std::nan("")), kNew);  // counts as no exposed time
  observed.plan(true);
  for (double value : {-1.0, 0.0, std::numeric_limits<double>::infinity()}) observed.look(value);
}

TEST(Rgmerge, MeasuresAndSoIsNotDeterministic) {
  const penstock_scheduler_traits traits = traits_of(make_scheduler(PENSTOCK_PLUGIN_FILE));
  EXPECT_EQ(traits.flags, uint32_t{PENSTOCK_SCHEDULER_MEASURES});
  EXPECT_EQ(traits.observe_every, 5u);
}

}  // namespace
}  // namespace penstock::test

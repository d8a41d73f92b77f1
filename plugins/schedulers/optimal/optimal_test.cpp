// The cut that exposes least, compared with every cut of few gradients and with random cuts of
// more.
#include <support/scheduling.hpp>

#include <gmock/gmock.h>
#include <planning/forecast.hpp>

#include <cmath>
#include <random>

namespace penstock::test {
namespace {

using Counts = std::vector<uint64_t>;

planning::Plan planned(const planning::ModelEntries& entries, const OptionSettings& settings = {}) {
  const planning::OwnedModel owned(entries);
  const planning::Plan plan = plan_of(make_scheduler(PENSTOCK_PLUGIN_FILE, settings), owned);
  expect_legal(plan, owned.model());
  return plan;
}

// ---- Models ----

// Models with whole numbers and eighths, whose sums are exact in every order.
class RandomModels {
 public:
  explicit RandomModels(uint32_t seed) : random_(seed) {}

  double pick(int low, int high) {
    return static_cast<double>(std::uniform_int_distribution<int>(low, high)(random_));
  }
  double eighths(int most) { return pick(0, 8 * most) / 8; }
  bool one_in(int n) { return pick(1, n) == 1; }

  // Dense gradients, sparse gradients, or both; the times of compute and link differ by orders of
  // magnitude.
  planning::ModelEntries next(uint64_t n, uint32_t route) {
    planning::ModelEntries entries;
    const bool codes = !one_in(4);  // else encoding and decoding cost nothing
    const int sparse = static_cast<int>(pick(0, 2));
    const int gap = one_in(2) ? 5 : 60, decoding = one_in(2) ? 2 : 30;
    const double encode_fixed = codes ? eighths(20) : 0,
                 decode_fixed = codes ? eighths(decoding) : 0;
    double ready = 0;
    for (uint64_t i = 0; i < n; ++i) {
      planning::GradientEntry& gradient = entries.gradients.emplace_back(planning::dense_gradient(
          "g" + std::to_string(i), static_cast<uint64_t>(pick(1, 90)), ready += eighths(gap)));
      gradient.forward_us = one_in(8) ? -1 : eighths(60) * static_cast<double>(n - i);
      planning::CandidateEntry& candidate = gradient.candidates[0];
      candidate.encode_per_element_us = codes ? 0.125 : 0;
      candidate.decode_per_element_us = codes && one_in(2) ? 0.125 : 0;
      candidate.encode_fixed_us = encode_fixed;
      candidate.decode_fixed_us = decode_fixed;
      entries.order.push_back(i);
      if (sparse == 0 || (sparse == 1 && one_in(2))) continue;
      candidate.compressor = "topk";
      candidate.encode_fixed_us = 2 * encode_fixed;
      candidate.combine = PENSTOCK_COMBINE_GATHER;
      candidate.phase_bytes = {static_cast<uint64_t>(pick(1, 40))};
    }
    entries.links = {{eighths(60), pick(0, 4) / 8, PENSTOCK_LEVEL_WORLD}};
    entries.world = static_cast<uint32_t>(pick(1, 8));
    entries.flags = PENSTOCK_MODEL_MEASURED | PENSTOCK_MODEL_FORWARD_WAITS;
    entries.route = route;
    return entries;
  }

 private:
  std::mt19937 random_;
};

// The time that is exposed by the cut after the gradients whose bit is set.
double exposed_by(const planning::OwnedModel& owned, const std::vector<bool>& ends_after) {
  const penstock_model& model = owned.model();
  planning::Plan plan;
  std::vector<uint64_t> bucket;
  for (uint64_t i = 0; i < model.n_gradients; ++i) {
    bucket.push_back(model.order[i]);
    if (i + 1 < model.n_gradients && !ends_after[i]) continue;
    plan.buckets.push_back(
        planning::whole_gradients(model, bucket, 0, planning::whole_bucket_route(model)));
    bucket.clear();
  }
  return planning::forecast(plan, model, 0).exposed_us;
}

double least_of_all_cuts(const planning::OwnedModel& owned) {
  const uint64_t n = owned.model().n_gradients;
  double least = std::numeric_limits<double>::infinity();
  std::vector<bool> ends_after(n);
  for (uint64_t cuts = 0; cuts < uint64_t{1} << (n - 1); ++cuts) {
    for (uint64_t i = 0; i + 1 < n; ++i) ends_after[i] = (cuts >> i & 1) != 0;
    least = std::min(least, exposed_by(owned, ends_after));
  }
  return least;
}

void expect_the_least_of_all_cuts(uint32_t route, int models, uint32_t seed) {
  RandomModels random(seed);
  const SchedulerInstance scheduler = make_scheduler(PENSTOCK_PLUGIN_FILE);
  for (int repeat = 0; repeat < models; ++repeat) {
    const int most = repeat % 10 == 0 ? 12 : 9;
    const planning::OwnedModel owned(
        random.next(static_cast<uint64_t>(random.pick(1, most)), route));
    const planning::Plan plan = plan_of(scheduler, owned);
    expect_legal(plan, owned.model());
    EXPECT_EQ(planning::exposed_us(plan, owned.model()), least_of_all_cuts(owned))
        << "model " << repeat;
  }
}

// ---- Common rules ----

TEST(Optimal, KeepsTheRulesOfEveryScheduler) {
  expect_the_common_rules(PENSTOCK_PLUGIN_FILE);
}

TEST(Optimal, LeavesGivenBucketsWhole) {
  expect_given_buckets_stay_together(PENSTOCK_PLUGIN_FILE);
}

TEST(Optimal, RefusesAbsurdModels) {
  expect_absurd_models_are_refused(PENSTOCK_PLUGIN_FILE);
}

TEST(Optimal, TakesEqualNumbersBeforeAnythingIsMeasured) {
  planning::ModelEntries entries = RandomModels(1).next(10, 0);
  entries.flags = 0;
  EXPECT_EQ(counts_of(planned(entries, {{"unmeasured_count", 4}})), (Counts{4, 4, 2}));
}

// ---- The search ----

TEST(Optimal, NoCutExposesLessOnWholeBuckets) {
  expect_the_least_of_all_cuts(PENSTOCK_ROUTE_FLAT, 3000, 7);
}

TEST(Optimal, NoCutExposesLessOnRouteSplit) {
  expect_the_least_of_all_cuts(PENSTOCK_ROUTE_SPLIT, 3000, 8);
}

// Times can run backwards if clocks jitter. The search does not allow this, so all cuts are tried.
TEST(Optimal, NoCutExposesLessWhereTimesRunBackwards) {
  RandomModels random(9);
  const SchedulerInstance scheduler = make_scheduler(PENSTOCK_PLUGIN_FILE);
  for (int repeat = 0; repeat < 300; ++repeat) {
    const uint32_t route = repeat % 2 == 0 ? PENSTOCK_ROUTE_FLAT : PENSTOCK_ROUTE_SPLIT;
    planning::ModelEntries entries = random.next(static_cast<uint64_t>(random.pick(2, 9)), route);
    for (planning::GradientEntry& gradient : entries.gradients)
      if (random.one_in(3)) gradient.ready_us = random.eighths(100);
    const planning::OwnedModel owned(entries);
    EXPECT_EQ(planning::exposed_us(plan_of(scheduler, owned), owned.model()),
              least_of_all_cuts(owned))
        << "model " << repeat;
  }
}

// For more gradients than one search can inspect: no cut that is tried here, by rule or at random,
// is better.
void expect_nothing_better_among_many(uint64_t n, uint32_t route) {
  RandomModels random(static_cast<uint32_t>(n) + route);
  const SchedulerInstance scheduler = make_scheduler(PENSTOCK_PLUGIN_FILE);
  for (int repeat = 0; repeat < 20; ++repeat) {
    const planning::OwnedModel owned(random.next(n, route));
    const planning::Plan plan = plan_of(scheduler, owned);
    expect_legal(plan, owned.model());
    const double planned = planning::exposed_us(plan, owned.model());
    for (uint64_t count = 1; count < 2 * n; count *= 2) {
      std::vector<bool> ends_after(n);
      for (uint64_t i = count - 1; i < n; i += count) ends_after[i] = true;
      EXPECT_LE(planned, exposed_by(owned, ends_after)) << count << " each, model " << repeat;
    }
    for (int chance = 0; chance < 100; ++chance) {
      std::vector<bool> ends_after(n);
      const int rate = static_cast<int>(random.pick(1, 40));
      for (uint64_t i = 0; i < n; ++i) ends_after[i] = random.one_in(rate);
      EXPECT_LE(planned, exposed_by(owned, ends_after)) << "model " << repeat;
    }
  }
}

TEST(Optimal, NoSimpleOrRandomCutOfManyExposesLessOnWholeBuckets) {
  for (uint64_t n : {13, 40, 64, 65, 161, 320})
    expect_nothing_better_among_many(n, PENSTOCK_ROUTE_FLAT);
}

TEST(Optimal, NoSimpleOrRandomCutOfManyExposesLessOnRouteSplit) {
  for (uint64_t n : {13, 40, 64, 65, 161, 320})
    expect_nothing_better_among_many(n, PENSTOCK_ROUTE_SPLIT);
}

TEST(Optimal, PlansEachPhaseByWhatItSends) {
  planning::ModelEntries entries = RandomModels(3).next(8, PENSTOCK_ROUTE_FLAT);
  entries.period = 2;
  for (size_t i = 0; i < 8; ++i)
    entries.gradients[i].candidates[0].phase_bytes = {i % 2 == 0 ? 400u : 0u, i % 2 == 0 ? 0u : 8u};
  const planning::Plan plan = planned(entries);
  for (uint32_t phase : {0u, 1u}) {
    std::vector<uint64_t> members;
    for (const std::vector<uint64_t>& bucket : gradients_of(plan, phase))
      members.insert(members.end(), bucket.begin(), bucket.end());
    EXPECT_EQ(members, phase == 0 ? (Counts{0, 2, 4, 6}) : (Counts{1, 3, 5, 7}));
  }
}

TEST(Optimal, OnRouteSplitAllReduceScattersComeFirstThenTheAllGathersInReverse) {
  planning::ModelEntries entries = RandomModels(4).next(6, PENSTOCK_ROUTE_SPLIT);
  for (uint32_t flags : {entries.flags, uint32_t{PENSTOCK_MODEL_FORWARD_WAITS}}) {
    entries.flags = flags;
    const planning::Plan plan = planned(entries, {{"unmeasured_count", 2}});
    const auto n = static_cast<uint32_t>(plan.buckets.size());
    std::vector<planning::MessagePlace> expected;
    for (uint32_t bucket = 0; bucket < n; ++bucket) expected.push_back({0, bucket, 0, 0});
    for (uint32_t bucket = n; bucket > 0; --bucket) expected.push_back({0, bucket - 1, 1, 0});
    EXPECT_EQ(plan.messages, expected);
    for (const planning::Bucket& bucket : plan.buckets)
      EXPECT_EQ(bucket.route, uint32_t{PENSTOCK_ROUTE_SPLIT});
  }
  entries.route = PENSTOCK_ROUTE_HIERARCHICAL;
  EXPECT_TRUE(planned(entries).messages.empty());
}

// ---- The explanation ----

// `n` gradients, one every 10 us. Each takes 10 us on a link with a start-up of 5 us.
planning::ModelEntries steady(uint64_t n) {
  planning::ModelEntries entries;
  for (uint64_t i = 0; i < n; ++i) {
    entries.gradients.push_back(
        planning::dense_gradient("g" + std::to_string(i), 25, 10.0 * static_cast<double>(i + 1)));
    entries.order.push_back(i);
  }
  entries.links = {{5, 0.1, PENSTOCK_LEVEL_WORLD}};
  entries.world = 2;
  entries.flags = PENSTOCK_MODEL_MEASURED;
  return entries;
}

std::string explanation_of(const planning::ModelEntries& entries) {
  const planning::Plan plan = planned(entries);
  EXPECT_EQ(plan.explanation.size(), 1u);
  return plan.explanation.at(0);
}

// One, one and two gradients: on the link from 10 to 25, from 25 to 40, and from 40, when the last
// is ready, to 65.
TEST(Optimal, SaysThatNoCutExposesLessWhereThatIsProven) {
  EXPECT_EQ(explanation_of(steady(4)),
            "optimal: phase 0: gradients per bucket 1, 1, 2; forecast: 25 us exposed after "
            "backward; no cut exposes less");
}

TEST(Optimal, SaysWhereItSearchedOnly) {
  EXPECT_THAT(explanation_of(steady(200)),
              ::testing::EndsWith("searched at 64 of 200 places at a time, so another cut may "
                                  "expose less"));
}

TEST(Optimal, SaysThatTimesRanBackwards) {
  planning::ModelEntries entries = steady(12);
  entries.gradients[5].ready_us = 3;
  EXPECT_THAT(explanation_of(entries), ::testing::EndsWith("no cut exposes less: all were tried"));
  entries = steady(13);
  entries.gradients[5].ready_us = 3;
  EXPECT_THAT(explanation_of(entries), ::testing::HasSubstr("not ready in the agreed order"));
}

TEST(Optimal, SaysThatNothingIsMeasuredYet) {
  planning::ModelEntries entries = steady(4);
  entries.flags = 0;
  EXPECT_EQ(explanation_of(entries),
            "optimal: phase 0: gradients per bucket 4; nothing is measured yet");
}

// ---- Observation ----

TEST(Optimal, PlansAgainOnceTimesAreMeasuredAndWhenTheForecastIsFarOff) {
  const SchedulerInstance scheduler = make_scheduler(PENSTOCK_PLUGIN_FILE);
  uint64_t step = 0;
  const auto look = [&](double exposed_us) {
    penstock_measurement measurement{};
    measurement.struct_size = sizeof measurement;
    measurement.step = step += 5;
    measurement.step_us = 100;
    measurement.exposed_us = exposed_us;
    uint32_t decision = 99;
    EXPECT_TRUE(succeeds(scheduler.table().observe(scheduler.self(), &measurement, &decision)));
    return decision;
  };
  planning::ModelEntries unmeasured = steady(4);
  unmeasured.flags = 0;
  plan_of(scheduler, planning::OwnedModel(unmeasured));
  EXPECT_EQ(look(50), uint32_t{PENSTOCK_MAKE_NEW_PLAN});
  plan_of(scheduler, planning::OwnedModel(steady(4)));  // 25 us of 65
  EXPECT_EQ(look(90), uint32_t{PENSTOCK_MAKE_NEW_PLAN});
  plan_of(scheduler, planning::OwnedModel(steady(4)));
  EXPECT_EQ(look(26), uint32_t{PENSTOCK_KEEP_PLAN});
  EXPECT_EQ(look(26), uint32_t{PENSTOCK_KEEP_PLAN});
}

TEST(Optimal, MeasuresAndMakesEveryRoute) {
  const penstock_scheduler_traits traits = traits_of(make_scheduler(PENSTOCK_PLUGIN_FILE));
  EXPECT_EQ(traits.flags, uint32_t{PENSTOCK_SCHEDULER_MEASURES});
  EXPECT_EQ(traits.observe_every, 5u);
  EXPECT_EQ(traits.routes,
            planning::kWholeBucketRoutes | planning::route_bit(PENSTOCK_ROUTE_SPLIT));
}

}  // namespace
}  // namespace penstock::test

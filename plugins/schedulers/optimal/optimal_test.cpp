// The least exposed of all cuts: against every cut of few gradients, and random cuts of more.
#include <support/scheduling.hpp>

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

// Whole numbers and eighths: sums of them are exact, whatever their order.
class RandomModels {
 public:
  explicit RandomModels(uint32_t seed) : random_(seed) {}

  double pick(int low, int high) {
    return static_cast<double>(std::uniform_int_distribution<int>(low, high)(random_));
  }
  double eighths(int most) { return pick(0, 8 * most) / 8; }
  bool one_in(int n) { return pick(1, n) == 1; }

  // Dense gradients, sparse ones, or both; what compute and link take differs by orders.
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

// What the cut after the gradients whose bit is set exposes.
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

}  // namespace
}  // namespace penstock::test

// Compares the forecast with the recursion of wait-free back-propagation and with a simulation by a
// clock, over every way to cut up to eight gradients into buckets.
#include "planning/forecast.hpp"

#include "planning/model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <string>

namespace penstock::planning {
namespace {

// All times are whole microseconds, so that a clock with one tick per microsecond is exact.
struct Job {
  int64_t ready, encode, exchange, decode;
};
struct JobTimes {
  int64_t encode_start = -1, exchange_start = -1, decode_start = -1, decode_end = -1;
};

// Simulates one tick after another: at each tick, the engine and the link, if free, take an allowed
// job. Every job takes at least one tick, so that no job starts and ends at one tick.
std::vector<JobTimes> simulate_by_clock(const std::vector<Job>& jobs) {
  std::vector<JobTimes> times(jobs.size());
  int64_t engine_until = 0;
  int64_t link_until = 0;
  size_t sent = 0;
  size_t decoded = 0;
  for (int64_t now = 0; decoded < jobs.size(); ++now) {
    if (sent < jobs.size() && now >= link_until && times[sent].encode_start >= 0 &&
        now >= times[sent].encode_start + jobs[sent].encode) {
      times[sent].exchange_start = now;
      link_until = now + jobs[sent].exchange;
      ++sent;
    }
    if (now < engine_until) continue;
    const auto has_arrived = [&](size_t i) {
      return times[i].exchange_start >= 0 && now >= times[i].exchange_start + jobs[i].exchange;
    };
    bool busy = false;
    for (size_t i = 0; i < jobs.size() && !busy; ++i) {
      if (times[i].decode_start >= 0 || !has_arrived(i)) continue;
      times[i].decode_start = now;
      times[i].decode_end = engine_until = now + jobs[i].decode;
      ++decoded;
      busy = true;
    }
    for (size_t i = 0; i < jobs.size() && !busy; ++i) {
      if (times[i].encode_start >= 0 || now < jobs[i].ready) continue;
      times[i].encode_start = now;
      engine_until = now + jobs[i].encode;
      busy = true;
    }
  }
  return times;
}

GradientEntry random_gradient(std::mt19937& random) {
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  GradientEntry gradient = dense_gradient("g", static_cast<uint64_t>(pick(1, 9)), pick(1, 60));
  CandidateEntry& candidate = gradient.candidates[0];
  const bool light = pick(0, 1) == 1;  // one compressor has one line; two share some buckets
  candidate.compressor = light ? "light" : "heavy";
  candidate.encode_fixed_us = light ? 1 : 5;
  candidate.encode_per_element_us = pick(0, 2);
  candidate.decode_fixed_us = light ? 2 : 4;
  candidate.decode_per_element_us = pick(0, 1);
  return gradient;
}

// Buckets of consecutive gradients in order of the model; bit i of `cuts` ends a bucket after the
// i-th.
Plan cut(const penstock_model& model, uint32_t cuts) {
  Plan plan;
  std::vector<uint64_t> gradients;
  for (uint64_t i = 0; i < model.n_gradients; ++i) {
    gradients.push_back(model.order[i]);
    if (((cuts >> i) & 1) == 0 && i + 1 < model.n_gradients) continue;
    plan.buckets.push_back(whole_gradients(model, gradients));
    gradients.clear();
  }
  return plan;
}

Job job_of(const Bucket& bucket, const ModelEntries& entries) {
  Job job{0, 0, 0, 0};
  uint64_t bytes = 0;
  std::set<std::string> called;
  for (const Piece& piece : bucket.pieces) {
    const GradientEntry& gradient = entries.gradients[piece.gradient];
    const CandidateEntry& candidate = gradient.candidates[0];
    const bool first = called.insert(candidate.compressor).second;
    const auto line = [&](double fixed, double slope) {
      return static_cast<int64_t>((first ? fixed : 0) + slope * static_cast<double>(piece.numel));
    };
    job.ready = std::max(job.ready, static_cast<int64_t>(gradient.ready_us));
    job.encode += line(candidate.encode_fixed_us, candidate.encode_per_element_us);
    job.decode += line(candidate.decode_fixed_us, candidate.decode_per_element_us);
    bytes += gradient.bytes;
  }
  job.exchange = static_cast<int64_t>(
      entries.links[0].alpha_us + entries.links[0].beta_us_per_byte * static_cast<double>(bytes));
  return job;
}

TEST(Forecast, EqualsAClockOverAllCutsOfUpToEightGradients) {
  std::mt19937 random(20240607);
  for (uint32_t n = 1; n <= 8; ++n) {
    for (int repeat = 0; repeat < 6; ++repeat) {
      ModelEntries entries;
      for (uint32_t i = 0; i < n; ++i) entries.gradients.push_back(random_gradient(random));
      entries.links = {{static_cast<double>(1 + repeat * 3), 1, PENSTOCK_LEVEL_WORLD}};
      entries.world = 2;
      const OwnedModel owned(entries);
      for (uint32_t cuts = 0; cuts < (1u << (n - 1)); ++cuts) {
        const Plan plan = cut(owned.model(), cuts);
        std::vector<Job> jobs;
        for (const Bucket& bucket : plan.buckets) jobs.push_back(job_of(bucket, entries));
        const std::vector<JobTimes> expected = simulate_by_clock(jobs);
        const Forecast line = forecast(plan, owned.model());
        ASSERT_EQ(line.buckets.size(), jobs.size());
        int64_t end = 0;
        for (size_t i = 0; i < jobs.size(); ++i) {
          ASSERT_EQ(line.buckets[i].encode_start, expected[i].encode_start) << n << " " << cuts;
          ASSERT_EQ(line.buckets[i].exchange_start, expected[i].exchange_start) << n << " " << cuts;
          ASSERT_EQ(line.buckets[i].decode_start, expected[i].decode_start) << n << " " << cuts;
          end = std::max(end, expected[i].decode_end);
        }
        ASSERT_EQ(line.end, end);
        ASSERT_EQ(line.exposed_us, end - line.backward_end);
      }
    }
  }
}

TEST(Forecast, WithoutEncodeAndDecodeIsTheWaitFreeRecursion) {
  std::mt19937 random(7);
  ModelEntries entries;
  double ready = 0;
  std::vector<double> ready_times;
  for (int i = 0; i < 50; ++i) {
    ready += std::uniform_int_distribution<int>(0, 30)(random);
    ready_times.push_back(ready);
    const int numel = std::uniform_int_distribution<int>(0, 20)(random);
    entries.gradients.push_back(dense_gradient("g", static_cast<uint64_t>(numel), ready));
    entries.order.push_back(static_cast<uint64_t>(i));
  }
  entries.links = {{5, 0.25, PENSTOCK_LEVEL_WORLD}};
  const OwnedModel owned(entries);
  Plan plan;
  for (uint64_t i = 0; i < 50; ++i) plan.buckets.push_back(whole_gradients(owned.model(), {i}));
  const Forecast line = forecast(plan, owned.model());
  double free_at = 0;
  for (size_t i = 0; i < 50; ++i) {
    const double start = std::max(free_at, ready_times[i]);
    free_at = start + 5 + 0.25 * static_cast<double>(entries.gradients[i].bytes);
    EXPECT_EQ(line.buckets[i].exchange_start, start);
    EXPECT_EQ(line.buckets[i].exchange_end, free_at);
  }
  EXPECT_EQ(line.exposed_us, free_at - ready);
}

ModelEntries two_layers() {
  ModelEntries entries;
  entries.gradients = {dense_gradient("first", 10, 20), dense_gradient("last", 10, 10)};
  entries.gradients[0].forward_us = 0;
  entries.gradients[1].forward_us = 50;
  entries.links = {{4, 1, PENSTOCK_LEVEL_WORLD}};  // 44 for each, 22 for each half
  entries.backward_us = 20;
  entries.flags = PENSTOCK_MODEL_MEASURED | PENSTOCK_MODEL_FORWARD_WAITS;
  return entries;
}

TEST(Forecast, SplitHidesTheAllGatherInTheNextForward) {
  const OwnedModel owned(two_layers());
  Plan plan;
  plan.buckets.push_back(whole_gradients(owned.model(), {1}, 0, PENSTOCK_ROUTE_SPLIT));
  plan.buckets.push_back(whole_gradients(owned.model(), {0}, 0, PENSTOCK_ROUTE_SPLIT));
  const Forecast line = forecast(plan, owned.model());
  EXPECT_EQ(line.buckets[0].exchange_start, 10);
  EXPECT_EQ(line.buckets[0].exchange_end, 32);
  EXPECT_EQ(line.buckets[1].exchange_end, 54);
  EXPECT_EQ(line.forward_start, 54);
  EXPECT_EQ(line.buckets[1].gather_end, 76);  // the first layer comes first: forward stalls by 22
  EXPECT_EQ(line.buckets[0].gather_end, 98);  // needed at 54 + 50 + the stall
  EXPECT_EQ(line.exposed_us, 34 + 22);
  Plan flat = plan;
  for (Bucket& bucket : flat.buckets) bucket.route = PENSTOCK_ROUTE_FLAT;
  EXPECT_EQ(forecast(flat, owned.model()).exposed_us, 98 - 20);
}

TEST(Forecast, BucketsThatWaitForTheSetStartAtTheEndOfBackward) {
  const OwnedModel owned(two_layers());
  Plan plan;
  plan.buckets.push_back(whole_gradients(owned.model(), {1}));
  plan.buckets[0].launch = PENSTOCK_LAUNCH_SET_COMPLETE;
  EXPECT_EQ(forecast(plan, owned.model()).buckets[0].exchange_start, 20);
}

TEST(Forecast, PhasesAreApartAndTheMeanIsOverAllOfThem) {
  ModelEntries entries = two_layers();
  entries.period = 2;
  for (GradientEntry& gradient : entries.gradients) gradient.candidates[0].phase_bytes = {40, 20};
  const OwnedModel owned(entries);
  Plan plan;
  plan.buckets.push_back(whole_gradients(owned.model(), {0, 1}, 0));
  plan.buckets.push_back(whole_gradients(owned.model(), {0, 1}, 1));
  EXPECT_EQ(forecast(plan, owned.model(), 0).exposed_us, 84);
  EXPECT_EQ(forecast(plan, owned.model(), 1).exposed_us, 44);
  EXPECT_EQ(forecast(plan, owned.model(), 1).buckets[0].bucket, 1u);
  EXPECT_EQ(exposed_us(plan, owned.model()), 64);
}

TEST(Forecast, ANumberThatIsNoTimeCountsAsZero) {
  ModelEntries entries = two_layers();
  entries.gradients[0].ready_us = std::nan("");
  entries.gradients[1].ready_us = -1;
  entries.backward_us = std::nan("");
  entries.links = {{std::nan(""), 1.0 / 0.0, PENSTOCK_LEVEL_WORLD}};
  entries.gradients[0].candidates[0].encode_fixed_us = 1.0 / 0.0;
  const OwnedModel owned(entries);
  Plan plan;
  plan.buckets.push_back(whole_gradients(owned.model(), {0, 1}));
  const Forecast line = forecast(plan, owned.model());
  EXPECT_EQ(line.end, 0);
  EXPECT_EQ(line.exposed_us, 0);
}

TEST(Forecast, ExchangesToldFromOutsideTakeThePlaceOfLines) {
  const OwnedModel owned(two_layers());
  Plan plan;
  plan.buckets.push_back(whole_gradients(owned.model(), {1}));
  plan.buckets.push_back(whole_gradients(owned.model(), {0}, 0, PENSTOCK_ROUTE_SPLIT));
  const auto exchange_of = [](uint64_t bucket) {
    return bucket == 0 ? ExchangeTimes{30, 0} : ExchangeTimes{7, 5};
  };
  const Forecast line = forecast(plan, owned.model(), 0, exchange_of);
  EXPECT_EQ(line.exchange_us, 30 + 7 + 5);
  EXPECT_EQ(line.buckets[0].exchange_end - line.buckets[0].exchange_start, 30);
  EXPECT_EQ(line.buckets[1].exchange_start, line.buckets[0].exchange_end);
  EXPECT_EQ(line.forward_start, line.buckets[1].exchange_end);
  EXPECT_EQ(line.buckets[1].gather_end - line.forward_start, 5);
}

TEST(Forecast, NoBucketsExposeNothing) {
  const OwnedModel owned(two_layers());
  const Forecast line = forecast(Plan{}, owned.model());
  EXPECT_TRUE(line.buckets.empty());
  EXPECT_EQ(line.exposed_us, 0);
  EXPECT_EQ(line.forward_start, 20);
}

TEST(Forecast, APartOfAGradientPaysItsShare) {
  const OwnedModel owned(two_layers());
  Plan plan;
  plan.buckets.push_back(whole_gradients(owned.model(), {1}));
  plan.buckets[0].pieces[0].numel = 5;
  EXPECT_EQ(forecast(plan, owned.model()).exchange_us, 4 + 20);
  EXPECT_EQ(forecast(plan, owned.model()).bytes, 20);
}

}  // namespace
}  // namespace penstock::planning

// Helpers for tests of schedulers: a plan from a loaded plugin, models of awkward shapes, and the
// rules for every plan.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <planning/model.hpp>
#include <planning/plan.hpp>
#include <string>
#include <testing/gtest.hpp>
#include <utility>
#include <vector>

namespace penstock::test {

inline SchedulerInstance make_scheduler(const char* file, const OptionSettings& settings = {}) {
  static std::map<std::string, LoadedPlugin> loaded;
  auto [place, is_new] = loaded.try_emplace(file);
  if (is_new) place->second = load_plugin(file);
  return SchedulerInstance(place->second, settings);
}

inline planning::Plan plan_of(const SchedulerInstance& scheduler, const penstock_model& model) {
  return scheduler.plan(model);
}
inline planning::Plan plan_of(const SchedulerInstance& scheduler,
                              const planning::OwnedModel& model) {
  return plan_of(scheduler, model.model());
}

inline penstock_scheduler_traits traits_of(const SchedulerInstance& scheduler) {
  return scheduler.describe();
}

// The gradients of the buckets of a phase, in order.
inline std::vector<std::vector<uint64_t>> gradients_of(const planning::Plan& plan,
                                                       uint32_t phase = 0) {
  std::vector<std::vector<uint64_t>> result;
  for (const planning::Bucket& bucket : plan.buckets) {
    if (bucket.phase != phase) continue;
    result.emplace_back();
    for (const planning::Piece& piece : bucket.pieces) result.back().push_back(piece.gradient);
  }
  return result;
}

inline std::vector<uint64_t> counts_of(const planning::Plan& plan, uint32_t phase = 0) {
  std::vector<uint64_t> counts;
  for (const auto& bucket : gradients_of(plan, phase)) counts.push_back(bucket.size());
  return counts;
}

// In each phase in which a gradient sends data, it is in one bucket, whole. It is in no other
// phase. A gradient that never sends data is in one bucket of one phase. There is no empty bucket,
// and no unknown gradient, choice or phase.
inline void expect_legal(const planning::Plan& plan, const penstock_model& model) {
  std::map<std::pair<uint32_t, uint64_t>, int> places;
  for (const planning::Bucket& bucket : plan.buckets) {
    ASSERT_LT(bucket.phase, model.period);
    EXPECT_FALSE(bucket.pieces.empty());
    for (const planning::Piece& piece : bucket.pieces) {
      ASSERT_LT(piece.gradient, model.n_gradients);
      EXPECT_EQ(piece.first, 0u);
      EXPECT_EQ(piece.numel, model.gradients[piece.gradient]->numel);
      EXPECT_EQ(piece.choice, 0u);
      ++places[{bucket.phase, piece.gradient}];
    }
  }
  for (uint64_t i = 0; i < model.n_gradients; ++i) {
    const uint64_t* bytes = model.gradients[i]->candidates[0]->phase_bytes;
    int total = 0;
    for (uint32_t phase = 0; phase < model.period; ++phase) {
      const auto place = places.find({phase, i});
      const int count = place == places.end() ? 0 : place->second;
      EXPECT_LE(count, 1) << "gradient " << i << " is in phase " << phase << " more than once";
      if (bytes[phase] > 0) {
        EXPECT_EQ(count, 1) << "gradient " << i << " is missing in phase " << phase;
      }
      total += count;
    }
    EXPECT_GE(total, 1) << "gradient " << i << " is in no phase";
  }
}

// `n` gradients whose sizes repeat with period 7 (some have 0 elements), two per module, ready one
// after the other, with forward times and one link.
inline planning::ModelEntries awkward_model(uint64_t n) {
  constexpr uint64_t kSizes[7] = {1, 4096, 0, 333, 1u << 20, 17, 65537};
  planning::ModelEntries entries;
  for (uint64_t i = 0; i < n; ++i) {
    const std::string name = "layer" + std::to_string(i / 2) + (i % 2 == 0 ? ".weight" : ".bias");
    entries.gradients.push_back(planning::dense_gradient(name, kSizes[i % 7]));
    entries.gradients.back().ready_us = 10.0 * static_cast<double>(n - i);
    entries.gradients.back().forward_us = 5.0 * static_cast<double>(i);
    planning::CandidateEntry& candidate = entries.gradients.back().candidates[0];
    candidate.encode_fixed_us = 1;
    candidate.encode_per_element_us = 1e-3;
    candidate.decode_fixed_us = 1;
  }
  entries.links = {{50, 1e-3, PENSTOCK_LEVEL_WORLD}};
  entries.backward_us = 10.0 * static_cast<double>(n);
  entries.world = 4;
  entries.flags = PENSTOCK_MODEL_MEASURED | PENSTOCK_MODEL_FORWARD_WAITS;
  return entries;
}

// The rules for every scheduler, with every kind of model. `settings` are the options.
inline void expect_the_common_rules(const char* file, const OptionSettings& settings = {}) {
  const auto check = [&](const planning::ModelEntries& entries) {
    const SchedulerInstance scheduler = make_scheduler(file, settings);
    const planning::OwnedModel owned(entries);
    const planning::Plan plan = plan_of(scheduler, owned);
    expect_legal(plan, owned.model());
    const planning::OwnedModel elsewhere(entries);  // equal values at other addresses
    EXPECT_EQ(plan_of(scheduler, elsewhere), plan) << "the same input gave another plan";
    EXPECT_EQ(plan_of(make_scheduler(file, settings), owned), plan);
    return plan;
  };
  EXPECT_TRUE(check(planning::ModelEntries{}).buckets.empty());
  for (uint64_t n : {1, 2, 10, 10000}) {
    SCOPED_TRACE(n);
    EXPECT_FALSE(check(awkward_model(n)).explanation.empty());
  }

  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (double value : {0.0, -1.0, kInfinity, -kInfinity, std::nan(""), 1e308}) {
    SCOPED_TRACE(value);
    planning::ModelEntries entries = awkward_model(30);
    for (planning::GradientEntry& gradient : entries.gradients) {
      gradient.ready_us = gradient.forward_us = value;
      planning::CandidateEntry& candidate = gradient.candidates[0];
      candidate.encode_fixed_us = candidate.encode_per_element_us = value;
      candidate.decode_fixed_us = candidate.decode_per_element_us = value;
    }
    entries.links = {{value, value, PENSTOCK_LEVEL_WORLD}};
    entries.backward_us = entries.forward_us = value;
    check(entries);
    entries.flags = PENSTOCK_MODEL_FORWARD_WAITS;  // also before any measurement
    check(entries);
  }

  planning::ModelEntries phases = awkward_model(9);
  phases.period = 2;
  for (size_t i = 0; i < phases.gradients.size(); ++i)
    phases.gradients[i].candidates[0].phase_bytes = {i % 3 == 0 ? 0u : 40u, i % 3 == 1 ? 0u : 8u};
  const planning::Plan plan = check(phases);
  EXPECT_FALSE(gradients_of(plan, 0).empty());
  EXPECT_FALSE(gradients_of(plan, 1).empty());

  planning::ModelEntries huge = awkward_model(5);  // sums of bytes beyond 64 bits
  for (planning::GradientEntry& gradient : huge.gradients) {
    gradient.bytes = UINT64_MAX - 1;
    gradient.candidates[0].phase_bytes = {UINT64_MAX - 1};
  }
  check(huge);
}

// With GIVEN_BUCKETS every given bucket stays whole and separate, in the order of its last
// gradient.
inline void expect_given_buckets_stay_together(const char* file,
                                               const OptionSettings& settings = {}) {
  planning::ModelEntries entries = awkward_model(7);
  entries.flags |= PENSTOCK_MODEL_GIVEN_BUCKETS;
  const uint32_t buckets[7] = {2, 2, 1, 2, 1, 0, PENSTOCK_NO_BUCKET};
  for (size_t i = 0; i < 7; ++i) entries.gradients[i].given_bucket = buckets[i];
  const planning::OwnedModel owned(entries);
  const planning::Plan plan = plan_of(make_scheduler(file, settings), owned);
  expect_legal(plan, owned.model());
  EXPECT_EQ(gradients_of(plan), (std::vector<std::vector<uint64_t>>{{6}, {5}, {4, 2}, {3, 1, 0}}));
}

// A model without a possible plan is refused by name.
inline void expect_absurd_models_are_refused(const char* file) {
  const SchedulerInstance scheduler = make_scheduler(file);
  const auto refused = [&](const planning::ModelEntries& entries, const std::string& part) {
    const planning::OwnedModel owned(entries);
    planning::PlanRecorder recorder;
    EXPECT_TRUE(
        fails_with(scheduler.table().plan(scheduler.self(), &owned.model(), recorder.sink()),
                   PENSTOCK_INVALID_ARGUMENT, part));
    EXPECT_TRUE(recorder.plan().buckets.empty());
  };
  planning::ModelEntries entries = awkward_model(3);
  entries.order = {0, 0, 1};
  refused(entries, "entry 1 of the model's order is 0");
  entries = awkward_model(3);
  entries.period = 0;
  refused(entries, "period is 0");
  entries = awkward_model(3);
  entries.gradients[2].candidates.clear();
  refused(entries, "gradient 2 has no candidate");
  entries = awkward_model(3);
  entries.route = 9;
  refused(entries, "route 9");
}

}  // namespace penstock::test

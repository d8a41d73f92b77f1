// Horovod's cycles: the gradients that share a bucket, against cuts made by hand, and when a new
// plan of cycles is made.
#include <algorithm>
#include <numeric>
#include <optional>
#include <random>
#include <support/scheduling.hpp>

namespace penstock::test {
namespace {

using Buckets = std::vector<std::vector<uint64_t>>;

// Six gradients of 40 bytes, ready at these microseconds.
planning::ModelEntries at(const std::vector<double>& ready_us) {
  planning::ModelEntries entries;
  for (size_t i = 0; i < ready_us.size(); ++i) {
    entries.gradients.push_back(planning::dense_gradient("g", 10, ready_us[i]));
    entries.order.push_back(i);
  }
  entries.flags = PENSTOCK_MODEL_MEASURED;
  return entries;
}

Buckets planned(const planning::ModelEntries& entries, const OptionSettings& settings = {}) {
  const SchedulerInstance scheduler = make_scheduler(PENSTOCK_PLUGIN_FILE, settings);
  return gradients_of(plan_of(scheduler, planning::OwnedModel(entries)));
}

TEST(Horovod, KeepsTheRulesOfEveryScheduler) {
  for (int threshold : {0, 1, 4096, 1 << 30})
    expect_the_common_rules(PENSTOCK_PLUGIN_FILE, {{"threshold_bytes", threshold}});
}

TEST(Horovod, LeavesGivenBucketsWhole) {
  expect_given_buckets_stay_together(PENSTOCK_PLUGIN_FILE, {{"threshold_bytes", 1}});
}

TEST(Horovod, RefusesAbsurdModels) {
  expect_absurd_models_are_refused(PENSTOCK_PLUGIN_FILE);
}

TEST(Horovod, JoinsWhatIsReadyInTheSameMillisecond) {
  EXPECT_EQ(planned(at({0, 999, 1000, 1999, 5000, 5001})), (Buckets{{0, 1}, {2, 3}, {4, 5}}));
}

TEST(Horovod, JoinsMoreInALongerCycle) {
  EXPECT_EQ(planned(at({0, 999, 1000, 1999, 5000, 5001}), {{"cycle_ms", 2.0}}),
            (Buckets{{0, 1, 2, 3}, {4, 5}}));
  EXPECT_EQ(planned(at({0, 999, 1000, 1999, 5000, 5001}), {{"cycle_ms", 10.0}}).size(), 1u);
}

TEST(Horovod, FillsBucketsOfACycleToTheThresholdInclusive) {
  EXPECT_EQ(planned(at({0, 1, 2, 3, 4, 2000}), {{"threshold_bytes", 80}}),
            (Buckets{{0, 1}, {2, 3}, {4}, {5}}));
  EXPECT_EQ(planned(at({0, 1, 2, 3, 4, 2000}), {{"threshold_bytes", 79}}).size(), 6u);
  EXPECT_EQ(planned(at({0, 1, 2, 3, 4, 2000}), {{"threshold_bytes", 0}}).size(), 6u);
}

TEST(Horovod, CountsWhatIsSentAgainstTheThreshold) {
  planning::ModelEntries entries = at({0, 1, 2, 3});
  for (planning::GradientEntry& gradient : entries.gradients)
    gradient.candidates[0].phase_bytes = {gradient.bytes / 2};
  EXPECT_EQ(planned(entries, {{"threshold_bytes", 80}}).size(), 1u);
}

TEST(Horovod, DefaultsToTheHundredTwentyEightMebibytesOfHorovod) {
  planning::ModelEntries entries;
  for (int i = 0; i < 5; ++i)
    entries.gradients.push_back(planning::dense_gradient("g", 8 << 20));  // 32 MiB each
  const planning::Plan plan =
      plan_of(make_scheduler(PENSTOCK_PLUGIN_FILE), planning::OwnedModel(entries));
  EXPECT_EQ(counts_of(plan), (std::vector<uint64_t>{4, 1}));
}

TEST(Horovod, KnowsNoCyclesBeforeAnythingIsMeasured) {
  planning::ModelEntries entries = at({0, 5000, 10000});
  entries.flags = 0;
  EXPECT_EQ(planned(entries), (Buckets{{0, 1, 2}}));
}

TEST(Horovod, FollowsEveryAgreedOrderOfReadiness) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    planning::ModelEntries entries = at({0, 0, 0, 0, 0, 0, 0, 0});
    std::shuffle(entries.order.begin(), entries.order.end(), random);
    for (size_t place = 0; place < 8; ++place)
      entries.gradients[entries.order[place]].ready_us = 400.0 * static_cast<double>(place);
    Buckets expected(3);  // three, two and three gradients in the first, second, third millisecond
    for (size_t place = 0; place < 8; ++place)
      expected[place * 400 / 1000].push_back(entries.order[place]);
    EXPECT_EQ(planned(entries), expected);
  }
}

class Observed {
 public:
  explicit Observed(bool measured) : scheduler_(make_scheduler(PENSTOCK_PLUGIN_FILE)) {
    plan(measured);
  }
  void plan(bool measured) {
    planning::ModelEntries entries = at({0, 1000, 2000, 3000});
    if (!measured) entries.flags = 0;
    plan_of(scheduler_, planning::OwnedModel(entries));
  }
  uint32_t look(const std::vector<double>& ready_us, uint64_t steps = 5) {
    step_ += steps;
    penstock_measurement measurement{};
    measurement.struct_size = sizeof measurement;
    measurement.step = step_;
    measurement.backward_us = 10000;
    measurement.ready_us = ready_us.data();
    measurement.n_gradients = ready_us.size();
    uint32_t decision = 99;
    EXPECT_TRUE(succeeds(scheduler_.table().observe(scheduler_.self(), &measurement, &decision)));
    return decision;
  }

 private:
  SchedulerInstance scheduler_;
  uint64_t step_ = 0;
};

const std::vector<double> kUsual{0, 1000, 2000, 3000};
const std::vector<double> kOneLater{0, 1000, 2000, 4500};
constexpr uint32_t kKeep = PENSTOCK_KEEP_PLAN, kNew = PENSTOCK_MAKE_NEW_PLAN;

TEST(Horovod, AsksForCyclesOnceReadyTimesAreMeasured) {
  Observed observed(false);
  EXPECT_EQ(observed.look(kUsual, 4), kKeep) << "after four of five steps";
  EXPECT_EQ(observed.look(kUsual, 1), kNew);
  observed.plan(true);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(observed.look(kUsual), kKeep);
}

TEST(Horovod, AgreesAnewWhenAQuarterOfTheGradientsMovedInTwoLooksInARow) {
  Observed observed(true);
  EXPECT_EQ(observed.look(kUsual), kKeep);
  EXPECT_EQ(observed.look(kOneLater), kKeep);
  EXPECT_EQ(observed.look(kUsual), kKeep) << "moved back";
  EXPECT_EQ(observed.look(kOneLater), kKeep);
  EXPECT_EQ(observed.look(kOneLater), kNew);
  observed.plan(true);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(observed.look(kOneLater), kKeep) << "the new usual";
}

TEST(Horovod, TakesAMoveWithinACycleForNoise) {
  Observed observed(true);
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(observed.look(i % 2 == 0 ? kUsual : std::vector<double>{900, 1900, 1100, 3900}),
              kKeep);
}

TEST(Horovod, AbsurdReadyTimesCountAsZero) {
  Observed observed(true);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(observed.look({std::nan(""), -1, kInfinity, -kInfinity}), kKeep);
  EXPECT_EQ(observed.look({0, 0, 0, 0}), kKeep);
  EXPECT_EQ(observed.look({0, 0, 0, 0}), kKeep);
}

// A run with autotune, in which a step takes as long as a function of its plan says.
class Tuned {
 public:
  explicit Tuned(OptionSettings settings, bool given = false)
      : entries_(at({0, 100, 1000, 1100, 2000, 2100})), given_(given) {
    settings.push_back({"autotune", true});
    scheduler_.emplace(make_scheduler(PENSTOCK_PLUGIN_FILE, settings));
    if (given_) {
      entries_.flags |= PENSTOCK_MODEL_GIVEN_BUCKETS;
      for (planning::GradientEntry& gradient : entries_.gradients) gradient.given_bucket = 0;
    }
    plan();
  }
  void plan() { plan_ = plan_of(*scheduler_, planning::OwnedModel(entries_)); }
  // The number of new plans that were asked for in `looks` observations.
  template <typename StepTime>
  int run(int looks, const StepTime& step_us) {
    const std::vector<double> ready_us{0, 100, 1000, 1100, 2000, 2100};
    int plans = 0;
    for (int look = 0; look < looks; ++look) {
      penstock_measurement measurement{};
      measurement.struct_size = sizeof measurement;
      measurement.step = step_ += 5;
      measurement.n_steps = 5;
      measurement.step_us = step_us(plan_);
      measurement.backward_us = 10000;
      measurement.ready_us = ready_us.data();
      measurement.n_gradients = ready_us.size();
      uint32_t decision = 99;
      EXPECT_TRUE(
          succeeds(scheduler_->table().observe(scheduler_->self(), &measurement, &decision)));
      if (decision != kNew) continue;
      plan();
      ++plans;
    }
    return plans;
  }
  Buckets buckets() const { return gradients_of(plan_); }
  std::string words() const { return plan_.explanation.at(0); }

 private:
  planning::ModelEntries entries_;
  bool given_;
  std::optional<SchedulerInstance> scheduler_;
  planning::Plan plan_;
  uint64_t step_ = 0;
};

TEST(Horovod, AutotuneFindsTheCycleThatMakesTheShortestStep) {
  Tuned tuned({});
  EXPECT_EQ(tuned.buckets(), (Buckets{{0, 1}, {2, 3}, {4, 5}}));
  EXPECT_NE(tuned.words().find("tuning: trial 1 of at most 20"), std::string::npos);
  tuned.run(80, [](const planning::Plan& plan) { return 1000.0 * plan.buckets.size(); });
  EXPECT_EQ(tuned.buckets(), (Buckets{{0, 1, 2, 3, 4, 5}})) << tuned.words();
  EXPECT_NE(tuned.words().find("1000 us a step, 3000 us as configured"), std::string::npos)
      << tuned.words();
  EXPECT_EQ(tuned.run(50, [](const planning::Plan&) { return 1000.0; }), 0) << "it has ended";
}

TEST(Horovod, AutotuneKeepsWhatWasSetWhereNothingIsFaster) {
  for (const double step_us : {1000.0, 0.0, -1.0, std::nan("")}) {
    Tuned tuned({});
    tuned.run(80, [&](const planning::Plan&) { return step_us; });
    EXPECT_EQ(tuned.buckets(), (Buckets{{0, 1}, {2, 3}, {4, 5}})) << step_us;
    EXPECT_EQ(tuned.run(50, [&](const planning::Plan&) { return step_us; }), 0);
  }
}

TEST(Horovod, AutotuneMakesNoTrialsOfBucketsThatTheFrontendGave) {
  Tuned tuned({}, true);
  EXPECT_EQ(tuned.run(50, [](const planning::Plan&) { return 1000.0; }), 0);
}

TEST(Horovod, RefusesToTuneAThresholdOfZero) {
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

// The whole scheduler against a machine whose true times are known: the probed, tried and kept
// assignments, and the explanation.
#include <planning/forecast.hpp>
#include <support/scheduling.hpp>

namespace penstock::test::auto_test {
namespace {

using planning::Piece;

planning::CandidateEntry candidate(const char* name, uint64_t bytes, double encode_per_element_us) {
  planning::CandidateEntry entry;
  entry.compressor = name;
  entry.phase_bytes = {bytes};
  entry.encode_fixed_us = 10;
  entry.encode_per_element_us = encode_per_element_us;
  entry.decode_fixed_us = 5;
  entry.decode_per_element_us = 0;
  return entry;
}

// Eight gradients of 100 000 elements and as many of ten, ready one after the other: dense, top-k
// (a hundredth, slow to encode), signs (a thirtieth, quick). A link of `beta` us per byte.
planning::ModelEntries model_with(double beta) {
  planning::ModelEntries entries;
  for (uint64_t i = 0; i < 16; ++i) {
    const uint64_t numel = i % 2 == 0 ? 100000 : 10;
    planning::GradientEntry gradient =
        planning::dense_gradient("g" + std::to_string(i), numel, 100.0 * double(i));
    gradient.candidates = {candidate("topk", std::max<uint64_t>(8, numel / 50), 0.01),
                           candidate("signs", numel / 8 + 4, 0.001),
                           candidate("none", 4 * numel, 0)};
    entries.gradients.push_back(gradient);
    entries.order.push_back(i);
  }
  entries.links = {{20, beta, PENSTOCK_LEVEL_WORLD}};
  entries.world = 2;
  entries.flags = PENSTOCK_MODEL_MEASURED;
  entries.backward_us = 1500;
  return entries;
}

void forget_costs(planning::ModelEntries& entries) {
  for (planning::GradientEntry& gradient : entries.gradients)
    for (planning::CandidateEntry& entry : gradient.candidates)
      entry.encode_fixed_us = entry.decode_fixed_us = -1;
}

// A run: plans are made from measured times, and steps take the times of the true model.
class Training {
 public:
  explicit Training(const planning::ModelEntries& entries, const OptionSettings& settings = {})
      : scheduler_(make_scheduler(PENSTOCK_PLUGIN_FILE, settings)) {
    plan(entries);
  }
  // Sets the times that are measured from now on; plans are made when auto asks for one.
  void measure(const planning::ModelEntries& measured) { measured_ = measured; }
  void plan(const planning::ModelEntries& measured) {
    measured_ = measured;
    plan_ = plan_of(scheduler_, planning::OwnedModel(measured));
  }
  // Makes this many observations of five steps each.
  void train(const planning::ModelEntries& truth, int looks) {
    for (int i = 0; i < looks; ++i) {
      const double step_us = step_of(plan_, truth);
      step_ += 5;
      penstock_measurement measurement{};
      measurement.struct_size = sizeof measurement;
      measurement.step = step_;
      measurement.n_steps = 5;
      measurement.step_us = step_us;
      uint32_t decision = 99;
      ASSERT_TRUE(succeeds(scheduler_.table().observe(scheduler_.self(), &measurement, &decision)));
      if (decision == PENSTOCK_MAKE_NEW_PLAN) plan(measured_);
    }
  }
  static double step_of(const planning::Plan& plan, const planning::ModelEntries& truth) {
    const planning::OwnedModel owned(truth);
    const planning::Forecast times = planning::forecast(plan, owned.model());
    return times.backward_end + times.exposed_us;
  }
  const planning::Plan& in_force() const { return plan_; }
  std::string said() const {
    std::string said;
    for (const std::string& line : plan_.explanation) said += line + "\n";
    return said;
  }

 private:
  SchedulerInstance scheduler_;
  planning::ModelEntries measured_;
  planning::Plan plan_;
  uint64_t step_ = 0;
};

std::map<uint32_t, int> choices_of(const planning::Plan& plan) {
  std::map<uint32_t, int> counts;
  for (const planning::Bucket& bucket : plan.buckets)
    for (const Piece& piece : bucket.pieces) ++counts[piece.choice];
  return counts;
}

TEST(Auto, KeepsTheRulesOfEveryScheduler) {
  expect_the_common_rules(PENSTOCK_PLUGIN_FILE);
}

TEST(Auto, LeavesGivenBucketsWhole) {
  expect_given_buckets_stay_together(PENSTOCK_PLUGIN_FILE);
}

TEST(Auto, RefusesAbsurdModels) {
  expect_absurd_models_are_refused(PENSTOCK_PLUGIN_FILE);
}

TEST(Auto, RunsEveryCandidateBeforeAnyIsTried) {
  planning::ModelEntries entries = model_with(0.1);
  forget_costs(entries);
  Training run(entries);
  EXPECT_EQ(choices_of(run.in_force()), (std::map<uint32_t, int>{{0, 6}, {1, 5}, {2, 5}}));
  for (planning::GradientEntry& gradient : entries.gradients)
    gradient.candidates[1].encode_fixed_us = gradient.candidates[1].decode_fixed_us = 1;
  run.plan(entries);
  EXPECT_EQ(choices_of(run.in_force()), (std::map<uint32_t, int>{{0, 8}, {2, 8}}));
}

// The answer of auto if no other assignment is worth a trial.
planning::Plan all_dense() {
  return Training(model_with(1e-6)).in_force();
}

TEST(Auto, BeginsWithWhatIsPredictedToBeShortest) {
  const auto entries = model_with(0.1);
  const Training run(entries);
  EXPECT_LT(Training::step_of(run.in_force(), entries),
            Training::step_of(all_dense(), entries) / 20);
}

TEST(Auto, KeepsCompressionOnASlowNetwork) {
  const auto entries = model_with(0.1);  // dense 320 ms, signs 10 ms, top-k 1.6 ms and 8 to encode
  Training run(entries);
  const double dense = Training::step_of(all_dense(), entries);
  run.train(entries, 20);
  EXPECT_EQ(choices_of(run.in_force()).count(2) == 0 || choices_of(run.in_force())[2] < 9, true);
  EXPECT_LT(Training::step_of(run.in_force(), entries), dense / 20);
  EXPECT_NE(run.said().find("; chosen"), std::string::npos) << run.said();
}

TEST(Auto, StaysDenseOnAFastNetworkAndTriesNothing) {
  const auto entries = model_with(1e-6);
  Training run(entries);
  for (int look = 0; look < 12; ++look) {
    EXPECT_EQ(choices_of(run.in_force()), (std::map<uint32_t, int>{{2, 16}}));
    run.train(entries, 1);
  }
  EXPECT_NE(run.said().find("no other assignment is forecast to be shorter, so none is tried"),
            std::string::npos)
      << run.said();
}

// In the model signs cost nothing; in truth they are the slowest.
TEST(Auto, BelievesMeasuredStepsMoreThanTheModel) {
  const auto believed = model_with(0.001);
  auto truth = believed;
  for (planning::GradientEntry& gradient : truth.gradients)
    for (int c : {0, 1}) gradient.candidates[size_t(c)].encode_per_element_us = 1;
  Training run(believed);
  const double dense = Training::step_of(all_dense(), truth);
  run.train(truth, 20);
  EXPECT_LE(Training::step_of(run.in_force(), truth), dense);
  EXPECT_EQ(choices_of(run.in_force()), (std::map<uint32_t, int>{{2, 16}})) << run.said();
}

TEST(Auto, IsNotSlowerThanDenseForLongWhenTheNetworkGetsFaster) {
  Training run(model_with(0.1));
  run.train(model_with(0.1), 20);
  auto fast = model_with(1e-6);
  const Training dense(fast);
  run.measure(fast);
  run.train(fast, 30);  // at most 16 looks, a round of 12, and not yet the next one
  EXPECT_LE(Training::step_of(run.in_force(), fast),
            Training::step_of(dense.in_force(), fast) * 1.02)
      << run.said();
}

// Never slower than the two plans that a user would write: each gradient alone, and all in one
// bucket, with any single compressor.
TEST(Auto, IsNoSlowerThanAnySingleCompressorWithSimpleBuckets) {
  for (double beta : {1e-6, 1e-4, 1e-3, 1e-2, 0.1}) {
    const auto entries = model_with(beta);
    const planning::OwnedModel owned(entries);
    Training run(entries);
    run.train(entries, 20);
    const double chosen = Training::step_of(run.in_force(), entries);
    for (uint32_t choice : {0u, 1u, 2u})
      for (bool alone : {true, false}) {
        planning::Plan plan;
        for (uint64_t g = 0; g < 16; ++g) {
          if (alone || g == 0) plan.buckets.emplace_back();
          plan.buckets.back().pieces.push_back({g, 0, owned.model().gradients[g]->numel, choice});
        }
        EXPECT_LE(chosen, Training::step_of(plan, entries) * (1 + 1e-9))
            << "beta " << beta << ", choice " << choice << "\n"
            << run.said();
      }
  }
}

TEST(Auto, BeginsAgainWithAnotherModel) {
  Training run(model_with(0.1));
  run.train(model_with(0.1), 20);
  planning::ModelEntries smaller = model_with(0.1);
  smaller.gradients.resize(4);
  smaller.order.resize(4);
  run.plan(smaller);
  EXPECT_NE(run.said().find("not measured; on trial"), std::string::npos) << run.said();
}

TEST(Auto, RefusesADenseThatIsNoCandidate) {
  const planning::OwnedModel owned(model_with(0.1));
  const SchedulerInstance scheduler = make_scheduler(PENSTOCK_PLUGIN_FILE, {{"dense", "fp16"}});
  planning::PlanRecorder recorder;
  EXPECT_TRUE(fails_with(
      scheduler.table().plan(scheduler.self(), &owned.model(), recorder.sink()),
      PENSTOCK_INVALID_ARGUMENT,
      "dense is \"fp16\", but the candidates of gradient 'g0' are \"topk\", \"signs\", \"none\""));
}

TEST(Auto, SaysOfEveryWayWhatWasPredictedAndMeasured) {
  Training run(model_with(0.1));
  EXPECT_NE(run.said().find("auto: all 'none': "), std::string::npos) << run.said();
  EXPECT_NE(run.said().find("not measured; on trial"), std::string::npos) << run.said();
  run.train(model_with(0.1), 3);
  EXPECT_NE(run.said().find(" us a step"), std::string::npos) << run.said();
}

}  // namespace
}  // namespace penstock::test::auto_test

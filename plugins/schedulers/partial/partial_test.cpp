// Partial sparsification: the gradients that stay dense, and that nothing is chosen before both
// candidates are measured.
#include <support/scheduling.hpp>

#include <random>

namespace penstock::test {
namespace {

using Choices = std::vector<uint32_t>;

// A gradient that is compressed to `sparse_bytes` or stays dense. Encoding takes 40 us per call and
// 0.5 us per element, and nothing if dense.
planning::GradientEntry choosable(uint64_t numel, uint64_t sparse_bytes) {
  planning::GradientEntry gradient = planning::dense_gradient("g", numel, 1);
  planning::CandidateEntry dense = gradient.candidates[0];
  dense.encode_fixed_us = dense.encode_per_element_us = 0;
  dense.decode_fixed_us = dense.decode_per_element_us = 0;
  planning::CandidateEntry sparse = dense;
  sparse.compressor = "adtopk";
  sparse.phase_bytes = {sparse_bytes};
  sparse.combine = PENSTOCK_COMBINE_GATHER;
  sparse.encode_fixed_us = 40;
  sparse.encode_per_element_us = 0.5;
  gradient.candidates = {sparse, dense};
  return gradient;
}

// Two ranks, a link of 1 us per byte that starts in 10 us.
planning::ModelEntries model_of(std::vector<planning::GradientEntry> gradients) {
  planning::ModelEntries entries;
  entries.gradients = std::move(gradients);
  for (uint64_t i = 0; i < entries.gradients.size(); ++i) entries.order.push_back(i);
  entries.links = {{10, 1, PENSTOCK_LEVEL_WORLD}};
  entries.world = 2;
  entries.flags = PENSTOCK_MODEL_MEASURED;
  return entries;
}

planning::Plan planned(const planning::ModelEntries& entries, const OptionSettings& settings = {}) {
  return plan_of(make_scheduler(PENSTOCK_PLUGIN_FILE, settings), planning::OwnedModel(entries));
}

Choices choices_of(const planning::Plan& plan) {
  Choices choices;
  for (const planning::Bucket& bucket : plan.buckets)
    for (const planning::Piece& piece : bucket.pieces) choices.push_back(piece.choice);
  return choices;
}

TEST(Partial, KeepsTheRulesOfEveryScheduler) {
  for (int count : {1, 3, 1000})
    expect_the_common_rules(PENSTOCK_PLUGIN_FILE, {{"bucket_count", count}});
}

TEST(Partial, LeavesGivenBucketsWhole) {
  expect_given_buckets_stay_together(PENSTOCK_PLUGIN_FILE);
}

TEST(Partial, RefusesAbsurdModels) {
  expect_absurd_models_are_refused(PENSTOCK_PLUGIN_FILE);
}

// Compressed, the second gradient takes 40 + 100 to encode and 10 + 64 to send, and dense 10 + 800.
// The first adds 2 + 8 if compressed, and 10 + 16 if dense, because it is a message of another
// kind.
TEST(Partial, CompressesAllWhereThatIsSooner) {
  const auto entries = model_of({choosable(4, 8), choosable(200, 64)});
  EXPECT_EQ(choices_of(planned(entries)), (Choices{0, 0}));
}

// The first gradient adds 10 + 72 if compressed, and 10 + 80 if dense. But there are three small
// gradients with only one start-up: 3 * 82 against 10 + 240.
TEST(Partial, KeepsSmallGradientsDenseWhereCompressingThemCostsMore) {
  const auto entries =
      model_of({choosable(20, 80), choosable(20, 80), choosable(20, 80), choosable(2000, 400)});
  EXPECT_EQ(choices_of(planned(entries)), (Choices{1, 1, 1, 0}));
}

TEST(Partial, EqualSizesGoTogether) {
  std::mt19937 random(3);
  for (int repeat = 0; repeat < 50; ++repeat) {
    std::vector<planning::GradientEntry> gradients;
    for (int i = 0; i < 12; ++i) {
      const auto numel = std::uniform_int_distribution<uint64_t>(1, 4)(random) * 50;
      gradients.push_back(choosable(numel, numel * 3));
    }
    const Choices choices = choices_of(planned(model_of(gradients)));
    std::map<int64_t, uint32_t> of_size;
    for (size_t i = 0; i < gradients.size(); ++i) {
      const auto [place, is_new] = of_size.try_emplace(gradients[i].shape[0], choices[i]);
      EXPECT_EQ(place->second, choices[i]);
    }
    uint32_t last = 1;  // no dense gradient is larger than a compressed one
    for (const auto& [size, choice] : of_size) {
      EXPECT_LE(choice, last);
      last = choice;
    }
  }
}

// Encoding is so slow that all dense would be best. The compressed bucket would send 320 bytes.
TEST(Partial, DenseGradientsStayWithinWhatTheCompressedBucketWouldSend) {
  planning::ModelEntries entries =
      model_of({choosable(40, 64), choosable(50, 64), choosable(1000, 192)});
  for (planning::GradientEntry& gradient : entries.gradients)
    gradient.candidates[0].encode_per_element_us = 100;
  EXPECT_EQ(choices_of(planned(entries)), (Choices{1, 0, 0}));
  EXPECT_EQ(choices_of(planned(entries, {{"within_budget", false}})), (Choices{1, 1, 1}));
}

TEST(Partial, ACandidateThatNeverRanIsProbedAndNotTakenForFree) {
  planning::ModelEntries entries;
  std::vector<planning::GradientEntry> gradients(40, choosable(100, 8));
  entries = model_of(gradients);
  entries.flags = 0;
  for (planning::GradientEntry& gradient : entries.gradients)
    for (planning::CandidateEntry& candidate : gradient.candidates)
      candidate.encode_fixed_us = candidate.decode_fixed_us = -1;
  const Choices first = choices_of(planned(entries, {{"bucket_count", 10}}));
  EXPECT_EQ(std::count(first.begin(), first.end(), 1u), 20);  // every second bucket

  entries.flags = PENSTOCK_MODEL_MEASURED;
  for (planning::GradientEntry& gradient : entries.gradients)
    gradient.candidates[0].encode_fixed_us = gradient.candidates[0].decode_fixed_us = 1;
  EXPECT_EQ(choices_of(planned(entries)), Choices(40, 1));  // it still has to run
}

TEST(Partial, ASingleBucketIsProbedGradientByGradient) {
  planning::ModelEntries entries = model_of({choosable(9, 8), choosable(9, 8), choosable(9, 8)});
  entries.flags = 0;
  EXPECT_EQ(choices_of(planned(entries)), (Choices{0, 1, 0}));
}

TEST(Partial, AsksForPlansUntilItHasChosen) {
  const SchedulerInstance scheduler = make_scheduler(PENSTOCK_PLUGIN_FILE);
  const auto look = [&] {
    penstock_measurement measurement{};
    measurement.struct_size = sizeof measurement;
    measurement.step = 5;
    uint32_t decision = 99;
    EXPECT_TRUE(succeeds(scheduler.table().observe(scheduler.self(), &measurement, &decision)));
    return decision;
  };
  planning::ModelEntries entries = model_of({choosable(9, 8), choosable(9, 8)});
  entries.flags = 0;
  plan_of(scheduler, planning::OwnedModel(entries));
  EXPECT_EQ(look(), uint32_t{PENSTOCK_MAKE_NEW_PLAN});
  entries.flags = PENSTOCK_MODEL_MEASURED;
  plan_of(scheduler, planning::OwnedModel(entries));
  EXPECT_EQ(look(), uint32_t{PENSTOCK_KEEP_PLAN});
}

TEST(Partial, RefusesADenseThatIsNoCandidate) {
  const planning::OwnedModel owned(model_of({choosable(9, 8)}));
  for (const char* name : {"nonee", "adtopk"}) {
    const SchedulerInstance scheduler = make_scheduler(PENSTOCK_PLUGIN_FILE, {{"dense", name}});
    planning::PlanRecorder recorder;
    EXPECT_TRUE(fails_with(
        scheduler.table().plan(scheduler.self(), &owned.model(), recorder.sink()),
        PENSTOCK_INVALID_ARGUMENT, "the candidates of gradient 'g' are \"adtopk\", \"none\""));
  }
}

TEST(Partial, SaysWhereThereIsNothingToChoose) {
  planning::ModelEntries entries = model_of({planning::dense_gradient("g", 9, 1)});
  const planning::Plan plan = planned(entries);
  ASSERT_EQ(plan.explanation.size(), 1u);
  EXPECT_EQ(
      plan.explanation[0],
      "partial: 1 buckets; no gradient has 'none' as a further candidate, so none stays dense");
}

// The compressor sends only in every second step; a dense gradient sends in both.
TEST(Partial, ADenseGradientTakesPartInEveryPhase) {
  planning::ModelEntries entries = model_of({choosable(2, 8), choosable(4000, 800)});
  entries.period = 2;
  for (planning::GradientEntry& gradient : entries.gradients) {
    gradient.candidates[0].phase_bytes = {gradient.candidates[0].phase_bytes[0], 0};
    gradient.candidates[0].encode_fixed_us = 400;
    gradient.candidates[1].phase_bytes = {gradient.bytes, gradient.bytes};
  }
  entries.gradients[0].candidates[0].encode_per_element_us = 1000;
  const planning::Plan plan = planned(entries);
  EXPECT_EQ(gradients_of(plan, 0), (std::vector<std::vector<uint64_t>>{{0, 1}}));
  EXPECT_EQ(gradients_of(plan, 1), (std::vector<std::vector<uint64_t>>{{0}}));
}

TEST(Partial, ChoosesByMeasuredTimesAndSoIsNotDeterministic) {
  const penstock_scheduler_traits traits = traits_of(make_scheduler(PENSTOCK_PLUGIN_FILE));
  EXPECT_EQ(traits.flags,
            uint32_t{PENSTOCK_SCHEDULER_MEASURES} | uint32_t{PENSTOCK_SCHEDULER_CHOOSES});
}

}  // namespace
}  // namespace penstock::test

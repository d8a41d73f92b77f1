// Runs with equal bits: two runs with `deterministic = true`, two runs with different schedulers,
// and DeAR, which leaves half of its work for the next forward, compared with a step that waits for
// all.

#include "core/set/training_testing.hpp"
#include "tests/support/worlds.hpp"

namespace penstock::repeat_test {
namespace {

using testing::descend;
using testing::Doubles;
using testing::kLearningRate;
using testing::make_set;
using testing::Problem;
using testing::run_step;
using testing::train;
using testing::Values;
using testing::view_of;
using testing::with_ranks;

constexpr uint64_t kSteps = 9;

// No dimension is divisible by two, three or four, so the parts of ranks have unequal sizes. Some
// dimensions are smaller than the number of ranks.
const Problem kProblem({{"a.weight", {7, 5}},
                        {"a.bias", {7}},
                        {"b.weight", {41, 101}},
                        {"empty", {0}},
                        {"c.weight", {3, 11}},
                        {"c.scale", {}},
                        {"d.weight", {2}}});

std::string deterministic(const std::string& keys, const std::string& tables = "") {
  return testing::scheme_text(keys, "deterministic = true\n" + tables);
}

struct Method {
  const char* name;
  const char* keys;
  const char* tables;
};
const Method kMethods[] = {
    {"none", "compressor = \"none\"\nmemory = \"none\"", ""},
    {"topk", "compressor = \"topk\"\nmemory = \"residual\"", "[compressor.topk]\ndensity = 0.05\n"},
    {"powersgd", "compressor = \"powersgd\"\nmemory = \"residual\"",
     "[compressor.powersgd]\nrank = 2\nminimum_compression_rate = 0.0\n"}};
const Method kSchedulers[] = {
    {"wfbp", "scheduler = \"wfbp\"", ""},
    {"fusion", "scheduler = \"fusion\"", "[scheduler.fusion]\nthreshold_bytes = 4096\n"},
    {"fgbuff", "scheduler = \"fgbuff\"", "[scheduler.fgbuff]\nmode = \"published\"\n"},
    {"mgwfbp", "scheduler = \"mgwfbp\"", "[scheduler.mgwfbp]\nmode = \"published\"\n"},
    {"omgs", "scheduler = \"omgs\"", "[scheduler.omgs]\nmode = \"published\"\n"},
    {"syncea", "scheduler = \"syncea\"", ""}};
const Method kDear = {"dear", "scheduler = \"dear\"\nroute = \"split\"", ""};

std::string text_of(const Method& method, const Method& scheduler) {
  return deterministic(fmt::format("{}\n{}", method.keys, scheduler.keys),
                       fmt::format("{}{}", method.tables, scheduler.tables));
}

// Training with deferred updates as in a frontend: the next forward waits for each gradient right
// before the first use of its parameter. Returns the parameters of every rank after the last flush.
std::vector<Doubles> train_deferred(uint32_t size, const std::string& scheme,
                                    const Problem& problem, uint64_t steps) {
  std::vector<Doubles> ends(size);
  with_ranks(size, scheme, [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, problem.shapes(), PENSTOCK_SET_DEFERRED_UPDATE);
    ASSERT_OK(set.status());
    ASSERT_TRUE(set.value()->defers());
    Doubles parameters = problem.start();
    Values gradients;
    for (uint64_t step = 0; step < steps; ++step) {
      // The forward updates each parameter before its first use.
      for (size_t g = 0; g < gradients.size(); ++g) {
        ASSERT_OK(set.value()->wait(g));
        for (size_t i = 0; i < parameters[g].size(); ++i)
          parameters[g][i] -= kLearningRate * double(gradients[g][i]);
      }
      if (!gradients.empty()) ASSERT_OK(set.value()->step_end(true));
      gradients = problem.gradients(parameters, rank, step);
      for (size_t g = gradients.size(); g-- > 0;)
        ASSERT_OK(set.value()->gradient_ready(g, view_of(gradients[g])));
      ASSERT_OK(set.value()->backward_end());
    }
    ASSERT_OK(set.value()->flush());
    ASSERT_OK(set.value()->step_end(true));
    descend(parameters, gradients);
    ends[rank] = parameters;
  });
  return ends;
}

class Deterministic : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Worlds, Deterministic, test::worlds({2, 3, 4}, {3}));

// Sums are in ascending order of ranks, and a selection belongs to one gradient. So the cut of
// gradients into buckets changes no bit either.
TEST_P(Deterministic, RunsGiveTheSameBitsAgainAndUnderEveryScheduler) {
  for (const Method& method : kMethods) {
    const auto first = train(GetParam(), text_of(method, kSchedulers[0]), kProblem, kSteps);
    ASSERT_EQ(first[0].size(), kSteps);
    for (const auto& rank : first) EXPECT_EQ(rank, first[0]) << method.name;
    for (const Method& scheduler : kSchedulers) {
      const auto again = train(GetParam(), text_of(method, scheduler), kProblem, kSteps);
      EXPECT_EQ(again, first) << method.name << " under " << scheduler.name;
      EXPECT_EQ(train(GetParam(), text_of(method, scheduler), kProblem, kSteps), again)
          << method.name << " under " << scheduler.name;
    }
  }
}

TEST_P(Deterministic, DearAfterFlushIsTheStepThatWaitsForAll) {
  const auto at_once = train(GetParam(), text_of(kMethods[0], kSchedulers[1]), kProblem, kSteps);
  // Every module alone, a few modules together, all modules in one group.
  for (const char* threshold : {"0", "600", "26214400"}) {
    const std::string text =
        text_of(kMethods[0], kDear) + "[scheduler.dear]\nthreshold_bytes = " + threshold + "\n";
    const auto deferred = train_deferred(GetParam(), text, kProblem, kSteps);
    for (uint32_t rank = 0; rank < GetParam(); ++rank)
      EXPECT_EQ(deferred[rank], at_once[rank].at(kSteps - 1))
          << "rank " << rank << ", " << threshold;
    EXPECT_EQ(train_deferred(GetParam(), text, kProblem, kSteps), deferred) << threshold;
  }
}

// Threads of a rank share the rows of a matrix. Each rank chooses its number of threads.
TEST(WorkerThreads, ChangeNoBit) {
  const Problem wide({{"a.weight", {300, 501}}, {"a.bias", {7}}});
  const std::string text = text_of(kMethods[2], kSchedulers[0]);
  const auto alone = train(2, text, wide, 4);
  std::string threaded = text;
  threaded.replace(threaded.find("deterministic = true"), 0, "worker_threads = 3\n");
  EXPECT_EQ(train(2, threaded, wide, 4), alone);
}

TEST(DeterministicPlans, AreNotMadeFromMeasuredTimes) {
  with_ranks(2, deterministic("scheduler = \"fgbuff\""), [&](Runtime& runtime, uint32_t) {
    const auto set = make_set(runtime, kProblem.shapes());
    ASSERT_FALSE(set.ok());
    EXPECT_NE(set.status().message().find("deterministic"), std::string_view::npos)
        << set.status().message();
  });
}

// Without `deterministic` both still agree up to rounding.
TEST(Dear, AgreesWithTheStepThatWaitsForAllAlsoInAWorldOfOne) {
  for (const uint32_t size : {1u, 2u, 5u}) {
    const auto at_once =
        train(size, testing::scheme_text("scheduler = \"fusion\""), kProblem, kSteps);
    const auto deferred = train_deferred(
        size, testing::scheme_text("scheduler = \"dear\"\nroute = \"split\""), kProblem, kSteps);
    for (uint32_t rank = 0; rank < size; ++rank)
      for (size_t g = 0; g < deferred[rank].size(); ++g)
        for (size_t i = 0; i < deferred[rank][g].size(); ++i)
          // Nine sums of a few floats below a hundred.
          ASSERT_NEAR(deferred[rank][g][i], at_once[rank].at(kSteps - 1)[g][i], 1e-4);
  }
}

}  // namespace
}  // namespace penstock::repeat_test

// Training with schedulers that plan from measured times. For every plan, and after every new plan,
// the training equals wait-free back-propagation. Every rank makes its gradients ready in its own
// order and at its own times.

#include "core/set/training_testing.hpp"
#include "tests/support/worlds.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>

namespace penstock::planners_test {
namespace {

using testing::Doubles;
using testing::make_set;
using testing::Problem;
using testing::Values;
using testing::view_of;
using testing::with_ranks;

constexpr uint64_t kSteps = 12;

const Problem kProblem({{"a.weight", {7, 5}},
                        {"a.bias", {7}},
                        {"b.weight", {41, 101}},
                        {"empty", {0}},
                        {"c.weight", {30, 11}},
                        {"c.scale", {}},
                        {"d.weight", {200}},
                        {"d.bias", {2}}});

struct Scheduler {
  const char* name;
  const char* tables;
};
// The scheduler makes a new plan as often as possible.
const Scheduler kOptimal = {
    "optimal",
    "[scheduler.optimal]\nprofile_steps = 2\nunmeasured_count = 3\nreplan_factor = 1.0001\n"
    "replan_observations = 1\n"};
const Scheduler kSchedulers[] = {
    {"syncea", ""},
    {"fgbuff",
     "[scheduler.fgbuff]\nprofile_steps = 2\nunmeasured_count = 3\nreplan_factor = 1.0001\n"},
    {"mgwfbp",
     "[scheduler.mgwfbp]\nprofile_steps = 2\nunmeasured_count = 3\nreplan_factor = 1.0001\n"},
    {"omgs", "[scheduler.omgs]\nprofile_steps = 2\nunmeasured_count = 3\nreplan_factor = 1.0001\n"},
    {"rgmerge",
     "[scheduler.rgmerge]\nprofile_steps = 2\nunmeasured_count = 3\nreplan_factor = 1.0001\n"
     "replan_observations = 1\n"},
    kOptimal,
    {"horovod", "[scheduler.horovod]\nprofile_steps = 2\ncycle_ms = 0.3\nmoved_share = 0.01\n"},
    {"horovod",
     "[scheduler.horovod]\nprofile_steps = 1\nthreshold_bytes = 4096\nautotune = true\n"}};
const Scheduler kTunedDear = {
    "dear", "[scheduler.dear]\nprofile_steps = 1\nthreshold_bytes = 64\nautotune = true\n"};

const char* const kDense = "compressor = \"none\"\nmemory = \"none\"";
const char* const kDenseSplit = "compressor = \"none\"\nmemory = \"none\"\nroute = \"split\"";
const char* const kTopk = "compressor = \"topk\"\nmemory = \"residual\"";
const char* const kTopkTable = "[compressor.topk]\ndensity = 0.05\n";

std::string text_of(const char* method, const Scheduler& scheduler) {
  return testing::scheme_text(
      fmt::format("{}\nscheduler = \"{}\"", method, scheduler.name),
      fmt::format("{}{}", method == kTopk ? kTopkTable : "", scheduler.tables));
}

// Gradients become ready in a random order, with random pauses.
void make_ready(Set& set, Values& gradients, std::mt19937& random) {
  std::vector<size_t> order(gradients.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  for (size_t g : order) {
    if (random() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 900));
    ASSERT_OK(set.gradient_ready(g, view_of(gradients[g])));
  }
}

// Parameters of rank 0 after the last step. All ranks must have equal parameters.
Doubles train(uint32_t size, const std::string& scheme) {
  std::vector<Doubles> ends(size);
  with_ranks(size, scheme, [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kProblem.shapes());
    ASSERT_OK(set.status());
    std::mt19937 random(rank);
    Doubles parameters = kProblem.start();
    for (uint64_t step = 0; step < kSteps; ++step) {
      Values gradients = kProblem.gradients(parameters, rank, step);
      make_ready(*set.value(), gradients, random);
      ASSERT_OK(set.value()->wait_all());
      testing::descend(parameters, gradients);
      ASSERT_OK(set.value()->step_end(true));
    }
    ends[rank] = parameters;
    const auto report = set.value()->report();
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report.value().find("nothing is measured"), std::string::npos)
        << "no plan was made from measured times: " << report.value();
  });
  for (const Doubles& end : ends) EXPECT_EQ(end, ends[0]);
  return ends[0];
}

void expect_near(const Doubles& a, const Doubles& b, const std::string& who) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t g = 0; g < a.size(); ++g)
    for (size_t i = 0; i < a[g].size(); ++i)
      ASSERT_NEAR(a[g][i], b[g][i], 1e-5 * (1 + std::abs(b[g][i])))
          << who << ": entry " << i << " of gradient " << g;
}

class Planners : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Worlds, Planners, test::worlds({1, 2, 3, 4}, {3}));

TEST_P(Planners, OfDenseGradientsTrainLikeWaitFreeBackPropagation) {
  const Doubles expected = train(GetParam(), text_of(kDense, {"wfbp", ""}));
  for (const Scheduler& scheduler : kSchedulers)
    expect_near(train(GetParam(), text_of(kDense, scheduler)), expected, scheduler.name);
}

// Selection and residual belong to a gradient, so no plan changes the payload of a gradient.
TEST_P(Planners, OfSparseGradientsLoseNothingWhenTheyPlanAgain) {
  const Doubles expected = train(GetParam(), text_of(kTopk, {"wfbp", ""}));
  for (const Scheduler& scheduler : kSchedulers)
    expect_near(train(GetParam(), text_of(kTopk, scheduler)), expected, scheduler.name);
}

// Trains on route split: each parameter is updated before its first use in the next forward. At the
// end the report must contain `said`.
Doubles train_deferred(uint32_t size, const std::string& scheme, const char* said = "") {
  std::vector<Doubles> ends(size);
  with_ranks(size, scheme, [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kProblem.shapes(), PENSTOCK_SET_DEFERRED_UPDATE);
    ASSERT_OK(set.status());
    std::mt19937 random(rank);
    Doubles parameters = kProblem.start();
    for (uint64_t step = 0; step < kSteps; ++step) {
      Values gradients = kProblem.gradients(parameters, rank, step);
      make_ready(*set.value(), gradients, random);
      ASSERT_OK(set.value()->backward_end());
      for (size_t g = 0; g < gradients.size(); ++g) {
        ASSERT_OK(set.value()->wait(g));
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
      }
      testing::descend(parameters, gradients);
      ASSERT_OK(set.value()->step_end(true));
    }
    ends[rank] = parameters;
    const auto report = set.value()->report();
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report.value().find("nothing is measured"), std::string::npos) << report.value();
    EXPECT_TRUE(rank != 0 || report.value().find(said) != std::string::npos) << report.value();
  });
  for (const Doubles& end : ends) EXPECT_EQ(end, ends[0]);
  return ends[0];
}

TEST_P(Planners, OnRouteSplitTrainLikeWaitFreeBackPropagation) {
  expect_near(train_deferred(GetParam(), text_of(kDenseSplit, kOptimal)),
              train(GetParam(), text_of(kDense, {"wfbp", ""})), "optimal");
}

TEST_P(Planners, ThatTuneRouteSplitTrainLikeWaitFreeBackPropagation) {
  expect_near(train_deferred(GetParam(), text_of(kDenseSplit, kTunedDear), "tun"),
              train(GetParam(), text_of(kDense, {"wfbp", ""})), "dear");
}

// Unsent values follow in steps with zero gradients. Values are float32, because rounding errors of
// float16 would follow in the next steps again. The sum of all results equals the sum of all
// gradients, while every gradient changes between dense and compressed.
void expect_mass_is_conserved(uint32_t size, const std::string& scheduler,
                              const std::string& options) {
  const std::string scheme = testing::scheme_text(
      fmt::format("compressor = \"topk\"\nmemory = \"residual\"\nscheduler = \"{}\"\n"
                  "candidates = [\"topk\", \"none\"]",
                  scheduler),
      fmt::format("[compressor.topk]\ndensity = 0.3\nvalue_type = \"fp32\"\n"
                  "[scheduler.{}]\nprofile_steps = 2\n{}",
                  scheduler, options));
  with_ranks(size, scheme, [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kProblem.shapes());
    ASSERT_OK(set.status());
    std::mt19937 random(rank);
    const Doubles parameters = kProblem.start();
    Doubles sent, results;
    for (const auto& gradient : parameters) {
      sent.emplace_back(gradient.size(), 0.0);
      results.emplace_back(gradient.size(), 0.0);
    }
    for (uint64_t step = 0; step < kSteps; ++step) {
      const bool rests = step >= kSteps - 4;  // each step leaves 0.3, so four steps are enough
      Values gradients = kProblem.gradients(parameters, rank, step);
      const Doubles mean = kProblem.mean(parameters, size, step);
      for (size_t g = 0; g < gradients.size(); ++g) {
        if (rests) std::fill(gradients[g].begin(), gradients[g].end(), 0.0f);
        for (size_t i = 0; i < gradients[g].size() && !rests; ++i) sent[g][i] += mean[g][i];
      }
      make_ready(*set.value(), gradients, random);
      ASSERT_OK(set.value()->wait_all());
      for (size_t g = 0; g < gradients.size(); ++g)
        for (size_t i = 0; i < gradients[g].size(); ++i) results[g][i] += double(gradients[g][i]);
      ASSERT_OK(set.value()->step_end(true));
    }
    expect_near(results, sent, scheduler);
  });
}

TEST_P(Planners, ThatKeepSomeGradientsDenseConserveMass) {
  expect_mass_is_conserved(GetParam(), "partial", "bucket_count = 2\n");
}

TEST_P(Planners, ThatTryOneWayAfterAnotherConserveMass) {
  expect_mass_is_conserved(GetParam(), "auto", "");
}

TEST_P(Planners, ThatChooseRoutesConserveMass) {
  expect_mass_is_conserved(GetParam(), "espresso", "small_elements = 0\n");
}

TEST(Planners, ThatChooseRoutesOverTwoHostsConserveMass) {
  expect_mass_is_conserved(4, "espresso",
                           "small_elements = 0\n[collective.loopback]\nhosts = \"0,0,1,1\"\n");
}

TEST_P(Planners, ThatCutGradientsIntoPartsConserveMass) {
  expect_mass_is_conserved(GetParam(), "hipress", "most_parts = 4\nbulk_bytes = 0\n");
}

// A late rank delays its own bucket, and no other bucket.
TEST(Planners, ALateGradientDelaysItsOwnBucketOnly) {
  with_ranks(2, text_of(kDense, {"rgmerge", "[scheduler.rgmerge]\nunmeasured_count = 1\n"}),
             [&](Runtime& runtime, uint32_t rank) {
               auto set = make_set(runtime, {{"early", {40}}, {"late", {30}}, {"last", {20}}});
               ASSERT_OK(set.status());
               Values gradients{Values::value_type(40, 1), Values::value_type(30, 2),
                                Values::value_type(20, 3)};
               ASSERT_OK(set.value()->gradient_ready(2, view_of(gradients[2])));
               if (rank == 0) ASSERT_OK(set.value()->gradient_ready(1, view_of(gradients[1])));
               ASSERT_OK(set.value()->gradient_ready(0, view_of(gradients[0])));
               if (rank == 1) {
                 for (uint64_t g : {0, 2}) {
                   bool done = false;
                   for (int i = 0; i < 10000 && !done; ++i) {
                     std::this_thread::sleep_for(std::chrono::milliseconds(1));
                     ASSERT_OK(set.value()->poll(g, done));
                   }
                   EXPECT_TRUE(done) << "gradient " << g << " waits for one of another bucket";
                 }
                 ASSERT_OK(set.value()->gradient_ready(1, view_of(gradients[1])));
               }
               ASSERT_OK(set.value()->wait_all());
               ASSERT_OK(set.value()->step_end(true));
             });
}

}  // namespace
}  // namespace penstock::planners_test

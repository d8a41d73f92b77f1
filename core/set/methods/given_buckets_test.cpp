// The frontend gives other buckets between two steps. The gradients travel in the new buckets, and
// kept values do not change.

#include "core/set/training_testing.hpp"
#include "tests/support/worlds.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace penstock::given_buckets_test {
namespace {

using testing::Doubles;
using testing::make_set;
using testing::Problem;
using testing::run_step;
using testing::scheme_text;
using testing::Values;
using testing::with_ranks;

constexpr uint32_t kGiven = PENSTOCK_SET_GIVEN_BUCKETS;
using Buckets = std::vector<uint32_t>;

const std::vector<testing::GradientShape> kShapes{{"a.weight", {12, 10}, PENSTOCK_FLOAT32, 1},
                                                  {"a.bias", {12}, PENSTOCK_FLOAT32, 1},
                                                  {"b.weight", {9, 12}, PENSTOCK_FLOAT32, 0},
                                                  {"b.bias", {9}, PENSTOCK_FLOAT32, 0}};

const std::string kTopk =
    scheme_text("scheduler = \"wfbp\"\ncompressor = \"topk\"\nmemory = \"residual\"",
                "[compressor.topk]\ndensity = 0.1\n");

// Parameters after ten steps. `change` gives other buckets before some steps.
Doubles train(Runtime& runtime, uint32_t rank, const std::map<uint64_t, Buckets>& change) {
  const Problem problem(kShapes);
  auto set = make_set(runtime, kShapes, kGiven);
  EXPECT_TRUE(set.ok()) << set.status().message();
  Doubles parameters = problem.start();
  for (uint64_t step = 0; step < 10; ++step) {
    if (const auto other = change.find(step); other != change.end()) {
      const Status given = set.value()->given_buckets(other->second);
      EXPECT_TRUE(given.ok()) << given.message();
    }
    Values gradients = problem.gradients(parameters, rank, step);
    const Status status = run_step(*set.value(), gradients);
    EXPECT_TRUE(status.ok()) << status.message();
    testing::descend(parameters, gradients);
  }
  return parameters;
}

class GivenBucketsOnRanks : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, GivenBucketsOnRanks, test::worlds({1, 2, 3, 4}));

TEST_P(GivenBucketsOnRanks, ResidualsStayWithTheirGradientsUnderOtherBuckets) {
  for (const Buckets& other : {Buckets{0, 1, 1, 0}, Buckets{3, 2, 1, 0}, Buckets{5, 5, 5, 5}})
    with_ranks(GetParam(), kTopk, [&](Runtime& runtime, uint32_t rank) {
      const Doubles never = train(runtime, rank, {});
      EXPECT_EQ(train(runtime, rank, {{1, other}}), never);
      EXPECT_EQ(train(runtime, rank, {{0, other}, {4, {1, 1, 0, 0}}, {5, other}}), never);
    });
}

// Two buckets that are large enough to travel without a copy. The layout of a bucket in memory may
// differ between ranks: in order, in another order, or apart. In step 2 one value is not finite.
TEST(GivenBuckets, PlainGradientsAreSummedWhereverTheyLie) {
  const std::vector<testing::GradientShape> shapes{{"a", {150, 1000}, PENSTOCK_FLOAT32, 1},
                                                   {"b", {151, 1000}, PENSTOCK_FLOAT32, 1},
                                                   {"c", {152, 1000}, PENSTOCK_FLOAT32, 0},
                                                   {"d", {153, 1000}, PENSTOCK_FLOAT32, 0}};
  const Problem problem(shapes);
  with_ranks(3, scheme_text("scheduler = \"wfbp\""), [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, shapes, kGiven);
    ASSERT_OK(set.status());
    const std::vector<size_t> order =
        rank == 1 ? std::vector<size_t>{3, 2, 1, 0} : std::vector<size_t>{2, 3, 0, 1};
    std::vector<float> memory(700'000);
    for (uint64_t step = 0; step < 4; ++step) {
      const Values gradients = problem.gradients(problem.start(), rank, step);
      std::vector<penstock_tensor> tensors(gradients.size());
      float* next = memory.data();
      for (const size_t g : order) {
        std::copy(gradients[g].begin(), gradients[g].end(), next);
        tensors[g] = testing::view_of(memory);
        tensors[g].data = next;
        tensors[g].numel = gradients[g].size();
        next += gradients[g].size() + (rank == 2 ? 1 : 0);
      }
      if (step == 2 && rank == 0)
        static_cast<float*>(tensors[3].data)[7] = std::numeric_limits<float>::infinity();
      for (const size_t g : {2, 3, 0, 1}) ASSERT_OK(set.value()->gradient_ready(g, tensors[g]));
      ASSERT_OK(set.value()->wait_all());
      const Doubles mean = problem.mean(problem.start(), 3, step);
      for (size_t g = 0; g < mean.size(); ++g) {
        const auto* result = static_cast<const float*>(tensors[g].data);
        for (size_t i = 0; i < mean[g].size(); ++i) {
          if (step == 2 && g >= 2)
            ASSERT_TRUE(std::isnan(result[i])) << g << ", " << i;
          else
            ASSERT_NEAR(result[i], mean[g][i], 1e-4) << g << ", " << i << ", step " << step;
        }
      }
      ASSERT_OK(set.value()->step_end(true));
      if (step == 0) ASSERT_OK(set.value()->given_buckets(Buckets{1, 1, 0, 0}));
    }
  });
}

uint64_t messages_of_a_step(Set& set, uint32_t rank) {
  const Problem problem(kShapes);
  penstock_counters before{}, after{};
  set.counters(before);
  Values gradients = problem.gradients(problem.start(), rank, 0);
  EXPECT_TRUE(run_step(set, gradients).ok());
  set.counters(after);
  return after.messages - before.messages;
}

TEST(GivenBuckets, WhatTravelsTogetherFollowsThem) {
  with_ranks(2, scheme_text("scheduler = \"wfbp\""), [](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes, kGiven);
    ASSERT_OK(set.status());
    const uint64_t two = messages_of_a_step(*set.value(), rank);
    ASSERT_OK(set.value()->given_buckets(Buckets{0, 0, 0, 0}));
    EXPECT_EQ(messages_of_a_step(*set.value(), rank) * 2, two);
    ASSERT_OK(set.value()->given_buckets(Buckets{0, 1, 2, 3}));
    EXPECT_EQ(messages_of_a_step(*set.value(), rank), two * 2);
  });
}

TEST(GivenBuckets, RanksWithDifferentOnesAreToldAndGoOnAsBefore) {
  with_ranks(3, kTopk, [](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes, kGiven);
    ASSERT_OK(set.status());
    const uint64_t before = messages_of_a_step(*set.value(), rank);
    const Status status =
        set.value()->given_buckets(rank == 2 ? Buckets{1, 1, 1, 1} : Buckets{0, 1, 2, 3});
    EXPECT_EQ(status.code(), Code::mismatch) << status.message();
    EXPECT_NE(status.message().find("'a.weight' bucket"), std::string::npos) << status.message();
    EXPECT_EQ(messages_of_a_step(*set.value(), rank), before);
  });
}

TEST(GivenBuckets, WhatOneRankGotWrongReachesAllAndEveryRankGoesOn) {
  with_ranks(2, kTopk, [](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes, kGiven);
    ASSERT_OK(set.status());
    Buckets buckets{0, 0, 1, 1};
    if (rank == 1) buckets.pop_back();
    const Status status = set.value()->given_buckets(buckets);
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find("for 3 gradients"), std::string::npos) << status.message();
    EXPECT_GT(messages_of_a_step(*set.value(), rank), 0U);
  });
}

TEST(GivenBuckets, TheyAreRefusedInTheMiddleOfAStepAndWhereNoneWereDeclared) {
  with_ranks(2, kTopk, [](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes, kGiven);
    ASSERT_OK(set.status());
    Values gradients = Problem(kShapes).gradients(Problem(kShapes).start(), rank, 0);
    ASSERT_OK(set.value()->gradient_ready(0, testing::view_of(gradients[0])));
    Status status = set.value()->given_buckets(Buckets{0, 0, 1, 1});
    EXPECT_NE(status.message().find("middle of step 0"), std::string::npos) << status.message();
    ASSERT_OK(set.value()->step_end(true));
    auto plain = make_set(runtime, kShapes, 0, "plain");
    ASSERT_OK(plain.status());
    status = plain.value()->given_buckets(Buckets{0, 0, 1, 1});
    EXPECT_NE(status.message().find("GIVEN_BUCKETS"), std::string::npos) << status.message();
  });
}

}  // namespace
}  // namespace penstock::given_buckets_test

// Steps of a set over loopback: results, bad calls, gradients that are missing or not finite.

#include "core/set/testing.hpp"
#include "tests/support/worlds.hpp"

#include <cmath>
#include <limits>

namespace penstock::step_test {
namespace {

using testing::make_set;
using testing::run_step;
using testing::scheme_text;
using testing::view_of;
using testing::with_ranks;

const std::string kDense = scheme_text("scheduler = \"fusion\"");
const std::vector<testing::GradientShape> kShapes{
    {"a.weight", {7, 5}}, {"a.bias", {7}}, {"b.weight", {3, 11}}, {"empty", {0}}, {"scalar", {}}};

std::vector<std::vector<float>> gradients_of(uint32_t rank, uint64_t step) {
  std::vector<std::vector<float>> gradients;
  for (const auto& shape : kShapes) {
    size_t numel = 1;
    for (int64_t extent : shape.shape) numel *= static_cast<size_t>(extent);
    auto& values = gradients.emplace_back(numel);
    for (size_t i = 0; i < numel; ++i)
      values[i] = float(rank + 1) * float(i + 1) + float(step) * 0.5f;
  }
  return gradients;
}

std::vector<std::vector<float>> mean_over(uint32_t size, uint64_t step) {
  auto mean = gradients_of(0, step);
  for (size_t g = 0; g < mean.size(); ++g)
    for (size_t i = 0; i < mean[g].size(); ++i) {
      double sum = 0;
      for (uint32_t rank = 0; rank < size; ++rank) sum += gradients_of(rank, step)[g][i];
      mean[g][i] = float(sum / size);
    }
  return mean;
}

void expect_close(const std::vector<std::vector<float>>& got,
                  const std::vector<std::vector<float>>& expected) {
  for (size_t g = 0; g < expected.size(); ++g)
    for (size_t i = 0; i < expected[g].size(); ++i)
      // Sums of a few small multiples of one half are exact, except for the division by the ranks.
      ASSERT_NEAR(got[g][i], expected[g][i], 1e-5 * std::abs(expected[g][i]))
          << kShapes[g].name << "[" << i << "]";
}

class Worlds : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Worlds, test::worlds({1, 2, 3, 4, 8}));

TEST_P(Worlds, DenseStepsGiveTheMeanOnEveryRank) {
  for (const char* scheduler : {"fusion", "wfbp"}) {
    with_ranks(GetParam(), scheme_text(fmt::format("scheduler = \"{}\"", scheduler)),
               [&](Runtime& runtime, uint32_t rank) {
                 auto set = make_set(runtime, kShapes);
                 ASSERT_OK(set.status());
                 for (uint64_t step = 0; step < 5; ++step) {
                   auto gradients = gradients_of(rank, step);
                   ASSERT_OK(run_step(*set.value(), gradients));
                   expect_close(gradients, mean_over(GetParam(), step));
                 }
               });
  }
}

TEST_P(Worlds, SplitRouteGivesTheMeanAfterTheForwardLegs) {
  with_ranks(GetParam(), scheme_text("scheduler = \"dear\"\nroute = \"split\""),
             [&](Runtime& runtime, uint32_t rank) {
               auto set = make_set(runtime, kShapes, PENSTOCK_SET_DEFERRED_UPDATE);
               ASSERT_OK(set.status());
               EXPECT_TRUE(set.value()->defers());
               for (uint64_t step = 0; step < 3; ++step) {
                 auto gradients = gradients_of(rank, step);
                 for (size_t i = gradients.size(); i-- > 0;)
                   ASSERT_OK(set.value()->gradient_ready(i, view_of(gradients[i])));
                 ASSERT_OK(set.value()->backward_end());
                 for (size_t i = 0; i < gradients.size(); ++i) ASSERT_OK(set.value()->wait(i));
                 ASSERT_OK(set.value()->step_end(true));
                 expect_close(gradients, mean_over(GetParam(), step));
               }
             });
}

TEST(Steps, SumIsLeftUndividedWhereTheFrontendWantsSums) {
  with_ranks(2, kDense, [&](Runtime& runtime, uint32_t) {
    auto set = make_set(runtime, {{"x", {2}}}, PENSTOCK_SET_SUM);
    ASSERT_OK(set.status());
    std::vector<std::vector<float>> gradients{{1, 2}};
    ASSERT_OK(run_step(*set.value(), gradients));
    EXPECT_EQ(gradients[0], (std::vector<float>{2, 4}));
  });
}

TEST(Steps, AGradientReadyTwiceIsRefusedAndTheStepGoesOn) {
  with_ranks(2, kDense, [&](Runtime& runtime, uint32_t) {
    auto set = make_set(runtime, {{"x", {2}}, {"y", {1}}});
    ASSERT_OK(set.status());
    std::vector<float> x{1, 2}, y{3};
    ASSERT_OK(set.value()->gradient_ready(0, view_of(x)));
    const Status twice = set.value()->gradient_ready(0, view_of(x));
    EXPECT_EQ(twice.code(), Code::failed_precondition);
    EXPECT_NE(twice.message().find("'x' became ready twice"), std::string_view::npos)
        << twice.message();
    ASSERT_OK(set.value()->gradient_ready(1, view_of(y)));
    ASSERT_OK(set.value()->wait_all());
    EXPECT_EQ(y[0], 3);
    ASSERT_OK(set.value()->step_end(true));
  });
}

TEST(Steps, AGradientReadyAfterTheWaitIsRefused) {
  with_ranks(1, kDense, [&](Runtime& runtime, uint32_t) {
    auto set = make_set(runtime, {{"x", {2}}});
    ASSERT_OK(set.status());
    ASSERT_OK(set.value()->wait_all());
    std::vector<float> x{1, 2};
    const Status late = set.value()->gradient_ready(0, view_of(x));
    EXPECT_NE(late.message().find("after a wait had closed it"), std::string_view::npos)
        << late.message();
    ASSERT_OK(set.value()->step_end(true));
    ASSERT_OK(set.value()->gradient_ready(0, view_of(x)));
    ASSERT_OK(set.value()->wait_all());
  });
}

TEST(Steps, AWrongShapeDtypeOrStrideIsRefused) {
  with_ranks(1, kDense, [&](Runtime& runtime, uint32_t) {
    auto set = make_set(runtime, {{"x", {2, 2}}});
    ASSERT_OK(set.status());
    std::vector<float> x{1, 2, 3, 4};
    penstock_tensor tensor = view_of(x);
    tensor.numel = 3;
    EXPECT_EQ(set.value()->gradient_ready(0, tensor).code(), Code::invalid_argument);
    tensor = view_of(x);
    tensor.dtype = PENSTOCK_FLOAT64;
    EXPECT_EQ(set.value()->gradient_ready(0, tensor).code(), Code::invalid_argument);
    tensor = view_of(x);
    const int64_t shape[] = {2, 2}, strides[] = {1, 2};
    tensor.shape = shape;
    tensor.strides = strides;
    tensor.n_dims = 2;
    const Status status = set.value()->gradient_ready(0, tensor);
    EXPECT_NE(status.message().find("not contiguous"), std::string_view::npos) << status.message();
    EXPECT_EQ(set.value()->gradient_ready(7, view_of(x)).code(), Code::invalid_argument);
  });
}

TEST(Steps, AGradientThatIsMissingOnOneRankCountsAsZero) {
  with_ranks(3, kDense, [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, {{"x", {2}}, {"y", {1}}});
    ASSERT_OK(set.status());
    std::vector<float> x{3, 6}, y{9};
    if (rank != 1)
      ASSERT_OK(set.value()->gradient_ready(0, view_of(x)));
    else
      ASSERT_OK(set.value()->gradient_absent(0, view_of(x)));
    if (rank != 2) ASSERT_OK(set.value()->gradient_ready(1, view_of(y)));
    ASSERT_OK(set.value()->wait_all());
    EXPECT_NEAR(x[0], 2, 1e-6);
    EXPECT_NEAR(x[1], 4, 1e-6);
    EXPECT_NEAR(y[0], rank == 2 ? 9 : 6,
                1e-6);  // rank 2 gave no storage: its tensor is not touched
    ASSERT_OK(set.value()->step_end(true));
  });
}

TEST(Steps, NonFiniteValuesOnOneRankReachEveryRankAsNan) {
  // Two gradients in one bucket: the bucket is void as a whole.
  with_ranks(2, kDense, [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, {{"x", {2}}, {"y", {1}}});
    ASSERT_OK(set.status());
    std::vector<std::vector<float>> gradients{
        {1, rank == 1 ? std::numeric_limits<float>::infinity() : 2}, {3}};
    ASSERT_OK(run_step(*set.value(), gradients));
    EXPECT_TRUE(std::isnan(gradients[0][0]) && std::isnan(gradients[0][1]) &&
                std::isnan(gradients[1][0]));
    penstock_counters counters{};
    counters.struct_size = sizeof counters;
    set.value()->counters(counters);
    EXPECT_EQ(counters.void_buckets, 1u);
    gradients = {{1, 2}, {3}};
    ASSERT_OK(run_step(*set.value(), gradients));
    EXPECT_EQ(gradients[0], (std::vector<float>{1, 2}));
  });
}

TEST(Steps, RanksWithDifferentShapesAreToldWhichLineDiffers) {
  with_ranks(2, kDense, [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, {{"x", {rank == 0 ? 2 : 3}}});
    ASSERT_FALSE(set.ok());
    EXPECT_EQ(set.status().code(), Code::mismatch);
    EXPECT_NE(set.status().message().find("'x'"), std::string_view::npos) << set.status().message();
  });
}

TEST(Steps, TwoGradientsOfOneNameAreRefused) {
  with_ranks(1, kDense, [&](Runtime& runtime, uint32_t) {
    EXPECT_EQ(make_set(runtime, {{"x", {2}}, {"x", {2}}}).status().code(), Code::invalid_argument);
  });
}

TEST(Steps, TwoSetsInOneRuntimeStepIndependently) {
  with_ranks(2, kDense, [&](Runtime& runtime, uint32_t rank) {
    auto first = make_set(runtime, {{"x", {2}}}, 0, "first");
    auto second = make_set(runtime, {{"x", {1}}}, 0, "second");
    ASSERT_OK(first.status());
    ASSERT_OK(second.status());
    for (int step = 0; step < 4; ++step) {
      std::vector<float> a{float(rank), 2}, b{float(rank * 2)};
      // The ranks use the sets in opposite orders.
      auto& one = rank == 0 ? *first.value() : *second.value();
      auto& other = rank == 0 ? *second.value() : *first.value();
      ASSERT_OK(one.gradient_ready(0, view_of(rank == 0 ? a : b)));
      ASSERT_OK(other.gradient_ready(0, view_of(rank == 0 ? b : a)));
      ASSERT_OK(one.wait_all());
      ASSERT_OK(other.wait_all());
      EXPECT_EQ(a, (std::vector<float>{0.5f, 2}));
      EXPECT_EQ(b, (std::vector<float>{1}));
      ASSERT_OK(one.step_end(true));
      ASSERT_OK(other.step_end(true));
    }
  });
}

}  // namespace
}  // namespace penstock::step_test

// Differences of parameters between ranks are found before the first step and reported on every
// rank.

#include "core/set/training_testing.hpp"

#include <support/sanitized.hpp>

#include <limits>

namespace penstock::parameters_test {
namespace {

using testing::make_set;
using testing::scheme_text;
using testing::with_ranks;

const std::vector<testing::GradientShape> kShapes{{"weight", {4, 3}}, {"bias", {4}}};
const std::string kScheme = scheme_text("compressor = \"none\"");
std::string asking(const std::string& what) {
  return scheme_text("compressor = \"none\"", "check_parameters = \"" + what + "\"\n");
}
constexpr std::string_view kAdvice = "Broadcast them first.";

Status compare(Set& set, const std::vector<std::string>& names,
               const std::vector<uint64_t>& checksums) {
  std::vector<penstock_str> views;
  for (const std::string& name : names) views.push_back(str(name));
  return set.compare_parameters(views, checksums, kAdvice);
}

// The answer on each rank, if the ranks have these checksums of "a", "b" and "c".
std::vector<std::string> messages_of(const std::vector<std::vector<uint64_t>>& of_ranks,
                                     const std::string& asked = "error") {
  std::vector<std::string> messages(of_ranks.size());
  with_ranks(uint32_t(of_ranks.size()), asking(asked), [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    std::vector<std::string> names{"a", "b", "c"};
    names.resize(of_ranks[rank].size(), "d");
    const Status status = compare(**set, names, of_ranks[rank]);
    if (!status.ok()) {
      EXPECT_EQ(status.code(), Code::mismatch) << status.message();
      messages[rank] = status.message();
    }
    // The comparison has not changed the set, for any result.
    testing::Values gradients{std::vector<float>(12, 1), std::vector<float>(4, float(rank))};
    ASSERT_OK(testing::run_step(**set, gradients));
  });
  return messages;
}

void expect_on_all(const std::vector<std::string>& messages, const std::string& expected) {
  for (const std::string& message : messages) EXPECT_EQ(message, expected);
}

TEST(Parameters, ThatAreEqualOnAllRanksPass) {
  expect_on_all(messages_of({{1, 2, 3}}), "");
  expect_on_all(messages_of({{1, 2, 3}, {1, 2, 3}, {1, 2, 3}}), "");
  expect_on_all(messages_of({{}, {}}), "");  // no rank compares
}

TEST(Parameters, ThatDifferAreToldOnEveryRankWithTheFirstOfThemAndItsRanks) {
  expect_on_all(messages_of({{1, 2, 3}, {1, 9, 3}}),
                "parameter b differs between ranks at the first step: rank 1 does not hold the "
                "values of rank 0 (1 of 3 parameters differ: b). Broadcast them first.");
  expect_on_all(messages_of({{1, 2, 3}, {1, 2, 8}, {7, 2, 3}, {6, 2, 3}}),
                "parameter a differs between ranks at the first step: rank 2, 3 do not hold the "
                "values of rank 0 (2 of 3 parameters differ: a, c). Broadcast them first.");
}

TEST(Parameters, ThatDifferAreAWarningOfOneRankUnlessAskedOtherwise) {
  ::testing::internal::CaptureStderr();
  expect_on_all(messages_of({{1, 2, 3}, {7, 2, 8}}, "warning"), "");
  const std::string log = ::testing::internal::GetCapturedStderr();
  const size_t first = log.find("parameter a differs between ranks at the first step: rank 1 does");
  ASSERT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find("parameter a differs", first + 1), std::string::npos) << log;
  for (const char* said : {"[0/2]", "(2 of 3 parameters differ: a, c)", "Broadcast them first.",
                           "runtime.check_parameters = \"error\""})
    EXPECT_NE(log.find(said), std::string::npos) << said << "\n" << log;
}

TEST(Parameters, AreNotComparedWhereTheRunSaysOff) {
  ::testing::internal::CaptureStderr();
  expect_on_all(messages_of({{1, 2, 3}, {7, 2, 8}}, "off"), "");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(Parameters, ThatOnlySomeRanksCompareAreRefusedOnAll) {
  for (const std::string& message : messages_of({{1, 2, 3}, {}, {1, 2, 3}}))
    EXPECT_NE(message.find("is not equal on all ranks"), std::string::npos) << message;
}

TEST(Parameters, OfManyRanksAreToldByTheFirstThatDiffer) {
  std::vector<std::vector<uint64_t>> of_ranks(test::kSanitized ? 11 : 16, {1, 2, 3});
  for (size_t rank = 1; rank < 11; ++rank) of_ranks[rank][1] = rank + 10;
  for (const std::string& message : messages_of(of_ranks))
    EXPECT_NE(message.find("rank 1, 2, 3, 4, 5, 6, 7, 8 and others do not hold"), std::string::npos)
        << message;
}

TEST(Parameters, AreNotComparedInTheMiddleOfAStep) {
  with_ranks(2, kScheme, [&](Runtime& runtime, uint32_t) {
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    testing::Values gradients{std::vector<float>(12, 1), std::vector<float>(4, 2)};
    ASSERT_OK((*set)->gradient_ready(0, testing::view_of(gradients[0])));
    const Status status = compare(**set, {"a"}, {1});
    EXPECT_EQ(status.code(), Code::failed_precondition);
    EXPECT_NE(status.message().find("step 0 is in progress"), std::string::npos)
        << status.message();
    ASSERT_OK((*set)->gradient_ready(1, testing::view_of(gradients[1])));
    ASSERT_OK((*set)->wait_all());
    ASSERT_OK((*set)->step_end(true));
    ASSERT_OK(compare(**set, {"a"}, {1}));
  });
}

TEST(Parameters, AreDueAgainOnceAfterEachNumberOfStepsThatTheRunNames) {
  const std::string scheme = scheme_text(
      "compressor = \"none\"", "check_parameters = \"error\"\ncheck_parameters_every = 2\n");
  with_ranks(2, scheme, [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    ASSERT_OK(compare(**set, {"a"}, {1}));
    EXPECT_FALSE((*set)->comparison_due());
    testing::Values gradients{std::vector<float>(12, 1), std::vector<float>(4, 2)};
    std::string due;
    for (int step = 1; step <= 5; ++step) {
      ASSERT_OK((*set)->gradient_ready(0, testing::view_of(gradients[0])));
      EXPECT_FALSE((*set)->comparison_due()) << "in the middle of a step";
      ASSERT_OK((*set)->gradient_ready(1, testing::view_of(gradients[1])));
      ASSERT_OK((*set)->wait_all());
      ASSERT_OK((*set)->step_end(true));
      due += (*set)->comparison_due() ? "1" : "0";
      if (step == 2) {
        ASSERT_OK(compare(**set, {"a"}, {7}));
        EXPECT_FALSE((*set)->comparison_due());
      }
    }
    EXPECT_EQ(due, "01010");
    const Status status = compare(**set, {"a"}, {rank});
    EXPECT_EQ(status.message(),
              "parameter a differs between ranks after 5 steps: rank 1 does not hold the values of "
              "rank 0 (1 of 1 parameters differ: a). Broadcast them first.");
  });
}

// The result of a gradient of ones is its learning rate.
TEST(LearningRates, OfAllGradientsAreToldAtOnceAndNoNumberLeavesOneAsItWas) {
  const std::string scheme =
      scheme_text("compressor = \"rated\"", testing::test_plugins({"rated"}));
  with_ranks(2, scheme, [&](Runtime& runtime, uint32_t) {
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    const double none = std::numeric_limits<double>::quiet_NaN();
    const auto rates_after = [&](std::vector<double> rates) {
      EXPECT_TRUE((*set)->learning_rates(rates).ok());
      testing::Values gradients{std::vector<float>(12, 1), std::vector<float>(4, 1)};
      EXPECT_TRUE(testing::run_step(**set, gradients).ok());
      return std::vector<float>{gradients[0][0], gradients[1][3]};
    };
    EXPECT_EQ(rates_after({0.5, 0.25}), (std::vector<float>{0.5, 0.25}));
    EXPECT_EQ(rates_after({none, 2}), (std::vector<float>{0.5, 2}));
    ASSERT_OK((*set)->learning_rate(0, 4));
    EXPECT_EQ(rates_after({none, none}), (std::vector<float>{4, 2}));
    const Status status = (*set)->learning_rates(std::vector<double>{1});
    EXPECT_NE(status.message().find("has 2 gradients and was given 1 learning rates"),
              std::string::npos)
        << status.message();
  });
}

// A rank gives the run up while other ranks wait for it. They receive the reason.
TEST(Parameters, OfARankThatLeavesAreNotWaitedFor) {
  with_ranks(2, kScheme, [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    if (rank == 1) return runtime.give_up(aborted("rank 1 has no data"));
    const Status status = compare(**set, {"a"}, {1});
    EXPECT_NE(status.message().find("rank 1 has no data"), std::string::npos) << status.message();
  });
}

}  // namespace
}  // namespace penstock::parameters_test

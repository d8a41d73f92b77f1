// Memories with a shift (EF21) in the engine. They receive the decoded payload, and no event in a
// step or plan separates the shifts from their mean.
#include "core/set/testing.hpp"

#include <cmath>
#include <limits>

namespace penstock::shift_test {
namespace {

using testing::make_set;
using testing::run_step;
using testing::scheme_text;
using testing::with_ranks;

using Values = std::vector<std::vector<float>>;

std::string scheme_of(const std::string& compressor, const std::string& tables = "") {
  return scheme_text(
      fmt::format("compressor = \"{}\"\nmemory = \"ef21\"\nscheduler = \"fusion\"", compressor),
      tables);
}

float gradient_of(uint32_t rank, uint64_t step) {
  return float((rank * 5 + step * 3) % 8) / 4 - 1;
}

// The code of one entry is exact. So if shifts and estimate have moved equally, each result is the
// mean of the gradients, after any earlier steps.
TEST(Shifts, TheMeanComesOutAfterVoidAndSkippedSteps) {
  for (const char* compressor : {"efsign", "fp16", "topk", "none"})
    with_ranks(2, scheme_of(compressor), [&](Runtime& runtime, uint32_t rank) {
      auto set = make_set(runtime, {{"scale", {1}}, {"shift", {1}}});
      ASSERT_OK(set.status());
      for (uint64_t step = 0; step < 12; ++step) {
        const float own = gradient_of(rank, step);
        const float mean = (gradient_of(0, step) + gradient_of(1, step)) / 2;
        const bool is_void = step % 4 == 2;
        Values gradients{{own}, {2 * own}};
        if (is_void && rank == 1) gradients[0][0] = std::numeric_limits<float>::infinity();
        ASSERT_OK(run_step(*set.value(), gradients, !is_void && step % 4 != 1));
        if (is_void) {
          EXPECT_TRUE(std::isnan(gradients[0][0])) << compressor;
          continue;
        }
        EXPECT_EQ(gradients[0][0], mean) << compressor << ", step " << step;
        EXPECT_EQ(gradients[1][0], 2 * mean) << compressor << ", step " << step;
      }
    });
}

// Random-k sends random entries and usually multiplies them. With a shift it must not, because the
// shifts would not converge to the gradients.
TEST(Shifts, ACompressorHearsThatTheRestFollows) {
  const std::string tables = "[compressor.randomk]\ndensity = 0.25\n";
  with_ranks(2, scheme_of("randomk", tables), [](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, {{"weight", {2, 4}}});
    ASSERT_OK(set.status());
    Values gradients;
    for (int step = 0; step < 60; ++step) {
      gradients = {{1, -2, 3, float(rank), 5, 6, 7, 8}};
      ASSERT_OK(run_step(*set.value(), gradients));
    }
    EXPECT_EQ(gradients[0], (std::vector<float>{1, -2, 3, 0.5f, 5, 6, 7, 8}));
  });
}

Values results_with(const std::string& tables) {
  Values results;
  with_ranks(2, scheme_of("topk", "[compressor.topk]\ndensity = 0.25\n" + tables),
             [&](Runtime& runtime, uint32_t rank) {
               auto set = make_set(runtime, {{"weight", {4, 5}}, {"bias", {9}}});
               ASSERT_OK(set.status());
               for (uint64_t step = 0; step < 6; ++step) {
                 Values gradients{std::vector<float>(20), std::vector<float>(9)};
                 for (auto& values : gradients)
                   for (size_t i = 0; i < values.size(); ++i)
                     values[i] = float((i * 7 + rank * 3 + step * 5) % 16) / 4 - 2;
                 ASSERT_OK(run_step(*set.value(), gradients));
                 if (rank == 0) results.insert(results.end(), gradients.begin(), gradients.end());
               }
             });
  return results;
}

TEST(Shifts, ANewPlanKeepsShiftsAndTheirMean) {
  const Values straight = results_with("");
  EXPECT_EQ(
      results_with("[[switch]]\nat_step = 3\nset = { scheduler.fusion.threshold_bytes = 0 }\n"),
      straight);
  ASSERT_EQ(straight.size(), 12u);
}

// Otherwise the top quarter of the carry would arrive, and the next step would take it back.
TEST(Shifts, WhatAnotherMemoryKeptBeforeGoesRoundTheShift) {
  const std::string tables =
      "[compressor.topk]\ndensity = 0.25\n"
      "[[switch]]\nat_step = 3\nset = { scheme.memory = \"ef21\" }\n";
  const std::string scheme =
      scheme_text("compressor = \"topk\"\nmemory = \"residual\"\nscheduler = \"fusion\"", tables);
  with_ranks(2, scheme, [](Runtime& runtime, uint32_t) {
    auto set = make_set(runtime, {{"weight", {8}}});
    ASSERT_OK(set.status());
    std::vector<float> arrived(8);
    for (uint64_t step = 0; step < 6; ++step) {
      Values gradients{{1, 2, 3, 4, 5, 6, 7, 8}};
      if (step >= 3) gradients[0].assign(8, 0.0f);
      ASSERT_OK(run_step(*set.value(), gradients));
      for (size_t i = 0; i < 8; ++i) arrived[i] += gradients[0][i];
    }
    EXPECT_EQ(arrived, (std::vector<float>{3, 6, 9, 12, 15, 18, 21, 24}));
  });
}

}  // namespace
}  // namespace penstock::shift_test

// Steps in which only some gradients are forgotten, and runs that do not forget.

#include "core/set/forget_testing.hpp"

#include <cmath>

namespace penstock::forget_parts_test {
namespace {

using namespace forgetting;
using testing::run_step;

// The gradients that are forgotten in a step: two gradients, such as an optimizer has, or one.
std::set<size_t> thrown_in(uint64_t step) {
  if (step % 4 == 1) return {0, 2};
  if (step % 4 == 2) return {1, 4};
  if (step % 4 == 3) return {step % kShapes.size()};
  return {};
}

// Two optimizers. A gradient is forgotten if it is thrown away when its optimizer steps, or if no
// optimizer has stepped when the set checks the gradient.
void end_as_seen(Set& set, uint64_t step) {
  const std::set<size_t> thrown = thrown_in(step);
  for (const std::vector<uint64_t>& gradients :
       {std::vector<uint64_t>{0, 2}, std::vector<uint64_t>{1, 3, 4}}) {
    Flags gone;
    for (const uint64_t g : gradients) gone.push_back(thrown.contains(g));
    const bool all_gone = std::find(gone.begin(), gone.end(), 0) == gone.end();
    if (all_gone && step > 0) continue;
    ASSERT_OK(set.optimizer_step(gradients, gone, PENSTOCK_OPTIMIZER_BEGINS));
    ASSERT_OK(set.optimizer_step(gradients, {}, PENSTOCK_OPTIMIZER_ENDS));
  }
  Flags gone;
  for (size_t g = 0; g < kShapes.size(); ++g) gone.push_back(thrown.contains(g));
  ASSERT_OK(set.results_gone(gone));
  EXPECT_FALSE(set.outcome_is_open());
  ASSERT_OK(set.step_end(PENSTOCK_STEP_AS_SEEN));
}

// Compares gradient g in a run of all gradients with its result in a run with g alone. The second
// run leaves out the steps in which g is forgotten.
void expect_gradients_forgotten_alone(const std::string& compressor, const std::string& memory,
                                      const std::string& tables, uint32_t size) {
  const std::string text = scheme_text(keys(compressor, memory), tables);
  std::vector<Values> together;
  with_ranks(size, text, [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    for (uint64_t step = 0; step < 12; ++step) {
      Values gradients = gradients_of(rank, step);
      ASSERT_OK(run_to_its_end(*set.value(), gradients));
      ASSERT_NO_FATAL_FAILURE(end_as_seen(*set.value(), step));
      if (rank == 0) together.push_back(gradients);
    }
    penstock_counters counters{};
    set.value()->counters(counters);
    EXPECT_EQ(counters.steps, 12u) << "some gradient was applied in each";
  });
  ASSERT_EQ(together.size(), 12u);
  for (size_t g = 0; g < kShapes.size(); ++g)
    with_ranks(size, text, [&](Runtime& runtime, uint32_t rank) {
      auto set = make_set(runtime, {kShapes[g]});
      ASSERT_OK(set.status());
      for (uint64_t step = 0; step < 12; ++step) {
        if (thrown_in(step).contains(g)) continue;
        Values gradients{gradients_of(rank, step)[g]};
        ASSERT_OK(run_step(*set.value(), gradients));
        if (rank == 0) {
          EXPECT_TRUE(same_bits(gradients, {together[step][g]}))
              << compressor << " with " << memory << ": '" << kShapes[g].name << "' in step "
              << step;
        }
      }
    });
}

class ForgottenGradientsOf : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, ForgottenGradientsOf, ::testing::Values(1, 2, 3, 4));

TEST_P(ForgottenGradientsOf, LeaveNoTraceEachOnItsOwn) {
  expect_gradients_forgotten_alone("topk", "residual", kFew, GetParam());
  expect_gradients_forgotten_alone("topk", "dgc", kFew + kDense, GetParam());
  expect_gradients_forgotten_alone("topk", "ef21", kFew, GetParam());
  expect_gradients_forgotten_alone("fp16", "residual", "", GetParam());
}

TEST(ForgottenGradients, OfWhichAllAreGoneMakeAStepThatDoesNotCount) {
  with_ranks(2, scheme_text(keys("topk", "residual"), kFew), [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    const std::vector<uint64_t> all{0, 1, 2, 3, 4};
    const auto step = [&](uint64_t draw, bool is_thrown_away) {
      Values gradients = gradients_of(rank, draw);
      ASSERT_OK(run_to_its_end(*set.value(), gradients));
      if (is_thrown_away) {
        ASSERT_OK(set.value()->results_gone(Flags(all.size(), 1)));
      } else {
        ASSERT_OK(set.value()->optimizer_step(all, {}, PENSTOCK_OPTIMIZER_BEGINS));
        ASSERT_OK(set.value()->optimizer_step(all, {}, PENSTOCK_OPTIMIZER_ENDS));
      }
      ASSERT_OK(set.value()->step_end(PENSTOCK_STEP_AS_SEEN));
    };
    step(0, false);
    std::string before, after;
    ASSERT_OK(set.value()->save(before));
    step(1, true);
    ASSERT_OK(set.value()->save(after = {}));
    EXPECT_TRUE(before == after);
    step(2, false);
    ASSERT_OK(set.value()->save(after = {}));
    EXPECT_FALSE(before == after);
  });
}

// Until an optimizer was seen, only the void bucket shows that the step is forgotten.
TEST(ForgottenGradients, AreAllOfAStepWithAVoidBucketUntilAnOptimizerIsSeen) {
  for (const char* nonfinite : {"void", "strict"})
    with_ranks(2,
               scheme_text(keys("topk", "residual"),
                           fmt::format("nonfinite = \"{}\"\n{}", nonfinite, kFew)),
               [&](Runtime& runtime, uint32_t rank) {
                 auto set = make_set(runtime, kShapes);
                 ASSERT_OK(set.status());
                 std::string before, after;
                 for (const bool is_void : {false, true, false}) {
                   ASSERT_OK(set.value()->save(before = {}));
                   Values gradients = gradients_of(rank, 0);
                   if (is_void && rank == 1) gradients[0][3] = std::nanf("");
                   ASSERT_OK(run_to_its_end(*set.value(), gradients));
                   ASSERT_OK(set.value()->step_end(PENSTOCK_STEP_AS_SEEN));
                   ASSERT_OK(set.value()->save(after = {}));
                   EXPECT_EQ(before == after, is_void) << nonfinite;
                 }
               });
}

// The memory is replaced after a step in which one gradient is forgotten, or after a step of a
// phase with other tensors. This memory subtracts the values that it hands over from its work.
TEST(ForgottenGradients, AreNotInWhatAMemoryHandsOver) {
  const auto results_with = [](const std::string& memory, const std::string& compressor) {
    const std::string tables = testing::test_plugins({"keep"}) +
                               (compressor == "topk" ? kFew : "") +
                               "[[switch]]\nat_step = 3\n"
                               "set = { scheme.compressor = \"none\", scheme.memory = \"none\" }\n";
    Trace seen;
    seen.results.resize(2);
    with_ranks(2, scheme_text(keys(compressor, memory), tables),
               [&](Runtime& runtime, uint32_t rank) {
                 auto set = make_set(runtime, kShapes);
                 ASSERT_OK(set.status());
                 for (uint64_t step = 0; step < 5; ++step) {
                   Values gradients = gradients_of(rank, step);
                   ASSERT_OK(run_to_its_end(*set.value(), gradients));
                   seen.results[rank].push_back(gradients);
                   const std::vector<uint64_t> all{0, 1, 2, 3, 4};
                   const Flags gone{uint8_t(step == 2), 0, uint8_t(step == 1), 0, 0};
                   ASSERT_OK(set.value()->optimizer_step(all, gone, PENSTOCK_OPTIMIZER_BEGINS));
                   ASSERT_OK(set.value()->optimizer_step(all, {}, PENSTOCK_OPTIMIZER_ENDS));
                   ASSERT_OK(set.value()->step_end(PENSTOCK_STEP_AS_SEEN));
                 }
               });
    return seen.results;
  };
  for (const char* compressor : {"topk", "acpsgd"}) {
    const auto expected = results_with("residual", compressor);
    const auto found = results_with("keep-c", compressor);
    for (uint32_t rank = 0; rank < 2; ++rank)
      for (uint64_t step = 0; step < 5; ++step)
        EXPECT_TRUE(same_bits(found[rank].at(step), expected[rank].at(step)))
            << compressor << " in step " << step;
  }
}

// ---- runs that do not forget ----

TEST(RunsThatDoNotForget, RefuseAndTheStepGoesOn) {
  const NamedScheme plain = scheme("topk", keys("topk", "residual"), kFew);
  const Trace expected = run(plain, 2, false);
  with_ranks(2, scheme_text(keys("topk", "residual"), "forget = false\n" + kFew),
             [&](Runtime& runtime, uint32_t rank) {
               auto set = make_set(runtime, kShapes);
               ASSERT_OK(set.status());
               for (uint64_t step = 0; step < kSteps; ++step) {
                 Values gradients = gradients_of(rank, step);
                 ASSERT_OK(run_to_its_end(*set.value(), gradients));
                 std::string saved;
                 const Status save = set.value()->save(saved);
                 const Status end = set.value()->step_end(PENSTOCK_STEP_FORGOTTEN);
                 for (const Status& refused : {save, end}) {
                   EXPECT_EQ(refused.code(), Code::failed_precondition);
                   EXPECT_NE(refused.message().find("forget = false"), std::string::npos)
                       << refused.message();
                 }
                 EXPECT_NE(end.message().find("'first'"), std::string::npos) << end.message();
                 ASSERT_OK(set.value()->step_end());
                 EXPECT_TRUE(same_bits(gradients, expected.results[rank][step])) << step;
                 ASSERT_OK(set.value()->save(saved = {}));
                 EXPECT_TRUE(saved == expected.saved[rank][step]) << step;
               }
             });
}

TEST(RunsThatDoNotForget, HaveNothingToRefuseWhereNothingIsKept) {
  with_ranks(2, scheme_text(keys("none", "none"), "forget = false\n"),
             [&](Runtime& runtime, uint32_t rank) {
               auto set = make_set(runtime, kShapes);
               ASSERT_OK(set.status());
               for (const uint32_t outcome : {PENSTOCK_STEP_FORGOTTEN, PENSTOCK_STEP_APPLIED}) {
                 Values gradients = gradients_of(rank, 0);
                 ASSERT_OK(run_to_its_end(*set.value(), gradients));
                 std::string saved;
                 ASSERT_OK(set.value()->save(saved));
                 ASSERT_OK(set.value()->step_end(outcome));
               }
               penstock_counters counters{};
               set.value()->counters(counters);
               EXPECT_EQ(counters.steps, 1u);
               EXPECT_EQ(counters.forgotten_steps, 1u);
             });
}

TEST(StepEnds, WithAnOutcomeThatIsNoneAreRefused) {
  with_ranks(1, scheme_text(keys("topk", "residual")), [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    Values gradients = gradients_of(rank, 0);
    ASSERT_OK(run_to_its_end(*set.value(), gradients));
    EXPECT_EQ(set.value()->step_end(3).code(), Code::invalid_argument);
    EXPECT_EQ(set.value()->optimizer_step({}, {}, 0).code(), Code::invalid_argument);
    EXPECT_EQ(set.value()->optimizer_step({}, {}, 4).code(), Code::invalid_argument);
    EXPECT_EQ(
        set.value()->optimizer_step(std::vector<uint64_t>{5}, {}, PENSTOCK_OPTIMIZER_BEGINS).code(),
        Code::invalid_argument);
    EXPECT_EQ(set.value()->results_gone(Flags(4)).code(), Code::invalid_argument);
    ASSERT_OK(set.value()->step_end());
  });
}

}  // namespace
}  // namespace penstock::forget_parts_test

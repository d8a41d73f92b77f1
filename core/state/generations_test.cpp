// A step changes a state completely or not at all.
#include "core/state/state_store.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <set>

namespace penstock::generations_test {
namespace {

using Values = std::vector<float>;

constexpr uint64_t kNumel = 12;

#define ASSERT_OK(expression)                                         \
  do {                                                                \
    const ::penstock::Status assert_ok_status = (expression);         \
    ASSERT_TRUE(assert_ok_status.ok()) << assert_ok_status.message(); \
  } while (false)

// A range of a state with one element per element of the gradient.
StateView& claim(StateStore& store, uint64_t first, uint64_t numel,
                 const std::string& gradient = "weight") {
  penstock_state_declaration state{};
  state.struct_size = sizeof state;
  state.rows = numel;
  state.cols = 1;
  state.dtype = PENSTOCK_FLOAT32;
  state.state_class = PENSTOCK_STATE_MASS;
  const StateKey key{gradient, {first, numel}, 0, "memory/mine", "kept"};
  return *store.claim(key, {0, kNumel}, state).value();
}

std::span<float> values(const penstock_tensor* tensor) {
  return {static_cast<float*>(tensor->data), tensor->numel};
}
Values copied(const StateView& view) {
  const std::span<float> seen = values(view.c());
  return {seen.begin(), seen.end()};
}
void fill(StateView& view, float value) {
  std::ranges::fill(values(view.c()), value);
}

std::string saved(const StateStore& store) {
  std::string bytes;
  EXPECT_TRUE(store.write(bytes).ok());
  return bytes;
}

Status forget(StateStore& store, const std::set<std::string>& gradients = {"weight"}) {
  return store.end_step([&](const std::string& gradient) { return gradients.contains(gradient); });
}

// Sets every element to `value`.
void step(StateStore& store, StateView& view, float value) {
  ASSERT_OK(view.open());
  fill(view, value);
  ASSERT_OK(store.end_step(nullptr));
}

TEST(Generations, AStepBeginsWithWhatTheOneBeforeHasLeft) {
  StateStore store(true);
  StateView& view = claim(store, 0, kNumel);
  for (float value = 1; value < 5; ++value) {
    ASSERT_OK(view.open());
    EXPECT_EQ(copied(view), Values(kNumel, value - 1));
    fill(view, value);
    ASSERT_OK(store.end_step(nullptr));
    EXPECT_EQ(copied(view), Values(kNumel, value));
  }
}

// Compares bits, because a NaN is not equal to itself, and -0 is equal to 0.
TEST(Generations, OfAForgottenStepNoBitIsLeft) {
  StateStore store(true);
  StateView& view = claim(store, 0, kNumel);
  ASSERT_OK(view.open());
  fill(view, -0.0f);
  values(view.c())[3] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_OK(store.end_step(nullptr));
  const std::string before = saved(store);
  const void* const where = view.c()->data;
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK(view.open());
    fill(view, float(i));
    ASSERT_OK(forget(store));
    EXPECT_EQ(saved(store), before);
    EXPECT_EQ(view.c()->data, where);
  }
}

TEST(Generations, WhatIsSavedInTheMiddleOfAStepIsTheStateBeforeIt) {
  StateStore store(true);
  StateView& view = claim(store, 0, kNumel);
  step(store, view, 7);
  const std::string before = saved(store);
  const uint64_t hash = store.hash_replicated().value();
  ASSERT_OK(view.open());
  fill(view, 8);
  EXPECT_EQ(saved(store), before);
  EXPECT_EQ(store.hash_replicated().value(), hash);
  ASSERT_OK(store.end_step(nullptr));
  EXPECT_EQ(copied(view), Values(kNumel, 8));
}

TEST(Generations, OpeningTwiceKeepsWhatTheStepHasWrittenBetween) {
  StateStore store(true);
  StateView& view = claim(store, 0, kNumel);
  ASSERT_OK(view.open());
  fill(view, 2);
  ASSERT_OK(view.open());
  EXPECT_EQ(copied(view), Values(kNumel, 2));
}

// Only a part of the gradient was in the step, or only one of its pieces.
TEST(Generations, WhatAStepHasNotOpenedStaysAsItIs) {
  StateStore store(true);
  StateView &head = claim(store, 0, 5), &tail = claim(store, 7, 5);
  StateView& whole = claim(store, 0, kNumel);
  step(store, whole, 1);
  step(store, head, 2);
  EXPECT_EQ(copied(whole), (Values{2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1}));
  ASSERT_OK(tail.open());
  fill(tail, 3);
  ASSERT_OK(head.open());
  fill(head, 4);
  ASSERT_OK(store.end_step(nullptr));
  EXPECT_EQ(copied(whole), (Values{4, 4, 4, 4, 4, 1, 1, 3, 3, 3, 3, 3}));
  ASSERT_OK(store.end_step(nullptr));  // a step in which no piece was opened
  EXPECT_EQ(copied(whole), (Values{4, 4, 4, 4, 4, 1, 1, 3, 3, 3, 3, 3}));
}

TEST(Generations, GradientsOfOneStepAreForgottenEachOnItsOwn) {
  StateStore store(true);
  StateView &weight = claim(store, 0, kNumel), &bias = claim(store, 0, kNumel, "bias");
  for (StateView* view : {&weight, &bias}) {
    ASSERT_OK(view->open());
    fill(*view, 1);
  }
  ASSERT_OK(forget(store, {"bias"}));
  EXPECT_EQ(copied(weight), Values(kNumel, 1));
  EXPECT_EQ(copied(bias), Values(kNumel, 0));
}

TEST(Generations, WhoWritesEveryElementReadsTheOneBeforeAndCostsNoCopy) {
  StateStore store(true);
  StateView& view = claim(store, 0, kNumel);
  step(store, view, 5);
  step(store, view, 6);
  view.open_unwritten();
  EXPECT_EQ(copied(view), Values(kNumel, 5)) << "what an earlier step has left, copied by nobody";
  EXPECT_EQ(values(view.before())[0], 6);
  ASSERT_OK(view.copy_after_all());
  EXPECT_EQ(copied(view), Values(kNumel, 6));
  ASSERT_OK(store.end_step(nullptr));
  EXPECT_EQ(copied(view), Values(kNumel, 6));
}

TEST(Generations, ZeroingDropsTheStepUnderWay) {
  StateStore store(true);
  StateView& view = claim(store, 0, kNumel);
  step(store, view, 5);
  ASSERT_OK(view.open());
  fill(view, 6);
  ASSERT_OK(store.zero());
  ASSERT_OK(store.end_step(nullptr));
  EXPECT_EQ(copied(view), Values(kNumel, 0));
}

TEST(Generations, ALaterPlanFindsTheGenerationThatIsInForce) {
  StateStore earlier(true);
  StateView& before = claim(earlier, 0, kNumel);
  for (float value = 1; value < 3; ++value) {
    step(earlier, before, value);
    StateStore later(true, &earlier);
    EXPECT_EQ(copied(claim(later, 3, 4)), Values(4, value));
  }
}

TEST(Generations, WithOneOfThemAStepWritesInPlace) {
  StateStore store(false);
  StateView& view = claim(store, 0, kNumel);
  const void* const where = view.c()->data;
  EXPECT_EQ(view.before(), nullptr);
  EXPECT_EQ(store.bytes(), kNumel * sizeof(float));
  step(store, view, 3);
  ASSERT_OK(view.open());
  EXPECT_EQ(view.c()->data, where);
  EXPECT_EQ(copied(view), Values(kNumel, 3));
}

TEST(Generations, ThereAreTwoOfEachState) {
  StateStore store(true);
  claim(store, 0, kNumel);
  EXPECT_EQ(store.bytes(), 2 * kNumel * sizeof(float));
}

// Pieces are opened in any order; some are never opened, some are opened repeatedly or folded.
// Steps are kept or forgotten. The test compares the state with one plain array.
TEST(Generations, EqualOneArrayThroughRandomSteps) {
  for (uint32_t seed = 1; seed <= 50; ++seed) {
    std::mt19937 random(seed);
    StateStore store(true);
    std::vector<StateView*> pieces;
    for (uint64_t first = 0, n; first < kNumel; first += n) {
      n = std::min<uint64_t>(1 + random() % 5, kNumel - first);
      pieces.push_back(&claim(store, first, n));
    }
    Values expected(kNumel, 0.0f);
    for (int i = 0; i < 40; ++i) {
      Values next = expected;
      for (uint64_t first = 0; StateView * piece : pieces) {
        const uint64_t n = piece->c()->numel;
        if (const uint32_t kind = random() % 4; kind > 0) {
          if (kind == 1) {  // like a folded sweep
            piece->open_unwritten();
            std::ranges::copy(values(piece->before()), values(piece->c()).begin());
          } else {
            ASSERT_OK(piece->open());
          }
          values(piece->c())[0] += float(i);
          if (kind == 3) ASSERT_OK(piece->open());
          values(piece->c())[n - 1] *= 3;
          next[first] += float(i);
          next[first + n - 1] *= 3;
        }
        first += n;
      }
      const bool is_kept = random() % 3 > 0;
      ASSERT_OK(is_kept ? store.end_step(nullptr) : forget(store));
      if (is_kept) expected = next;
      Values found;
      for (const StateView* piece : pieces)
        for (const float value : copied(*piece)) found.push_back(value);
      ASSERT_EQ(found, expected) << "seed " << seed << ", step " << i;
    }
  }
}

}  // namespace
}  // namespace penstock::generations_test

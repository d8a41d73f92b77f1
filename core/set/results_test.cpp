// An application that is notified of results instead of waiting for them.

#include "core/set/testing.hpp"

#include <condition_variable>
#include <map>
#include <mutex>

namespace penstock::results_test {
namespace {

using testing::make_set;
using testing::scheme_text;
using testing::view_of;
using testing::with_ranks;

const std::vector<testing::GradientShape> kShapes{
    {"a.weight", {7, 5}}, {"a.bias", {7}}, {"b.weight", {3, 11}}, {"empty", {0}}};

std::vector<std::vector<float>> gradients_of(uint32_t rank) {
  std::vector<std::vector<float>> gradients;
  for (const auto& shape : kShapes) {
    size_t numel = 1;
    for (int64_t extent : shape.shape) numel *= static_cast<size_t>(extent);
    auto& values = gradients.emplace_back(numel);
    for (size_t i = 0; i < numel; ++i) values[i] = float(rank) * 2 + float(i);
  }
  return gradients;
}

// Counts the notifications.
class Listener {
 public:
  static void hear(void* context, const uint64_t* gradients, uint64_t n_gradients,
                   const penstock_status* error) {
    auto& self = *static_cast<Listener*>(context);
    std::lock_guard lock(self.mutex_);
    for (uint64_t i = 0; i < n_gradients; ++i) ++self.times_[gradients[i]];
    if (error != nullptr) self.error_ = peek(error).message();
    self.heard_.notify_all();
  }
  // Waits until `n` gradients were reported; returns how often each of these was reported.
  std::map<uint64_t, int> wait_for(size_t n) {
    std::unique_lock lock(mutex_);
    heard_.wait_for(lock, std::chrono::seconds(60), [&] { return times_.size() >= n; });
    return std::exchange(times_, {});
  }
  std::string error() {
    std::lock_guard lock(mutex_);
    return error_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable heard_;
  std::map<uint64_t, int> times_;
  std::string error_;
};

class ResultsUnder : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, ResultsUnder, ::testing::Values("wfbp", "fusion", "syncea"));

TEST_P(ResultsUnder, EveryResultIsToldOnceWithoutAWait) {
  with_ranks(3, scheme_text(fmt::format("scheduler = \"{}\"", GetParam())),
             [&](Runtime& runtime, uint32_t rank) {
               Listener listener;
               auto set = make_set(runtime, kShapes);
               ASSERT_OK(set.status());
               ASSERT_OK(set.value()->on_result(&listener, Listener::hear));
               for (int step = 0; step < 4; ++step) {
                 auto gradients = gradients_of(rank);
                 for (size_t i = gradients.size(); i-- > 0;)
                   ASSERT_OK(set.value()->gradient_ready(i, view_of(gradients[i])));
                 const auto results = listener.wait_for(kShapes.size());
                 ASSERT_EQ(results.size(), kShapes.size());
                 for (const auto& [gradient, times] : results) EXPECT_EQ(times, 1) << gradient;
                 // The mean over ranks 0, 1 and 2 equals the values of rank 1. They are small
                 // integers, so it is exact.
                 EXPECT_EQ(gradients, gradients_of(1));
                 ASSERT_OK(set.value()->step_end(true));
                 EXPECT_TRUE(listener.wait_for(0).empty()) << "reported after the step's end";
               }
             });
}

TEST(Results, AGradientThatWasNotComputedHereIsToldToo) {
  with_ranks(2, scheme_text("scheduler = \"wfbp\""), [](Runtime& runtime, uint32_t rank) {
    Listener listener;
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    ASSERT_OK(set.value()->on_result(&listener, Listener::hear));
    auto gradients = gradients_of(1);
    for (size_t i = 0; i < gradients.size(); ++i)
      ASSERT_OK(rank == 0 ? set.value()->gradient_absent(i, view_of(gradients[i]))
                          : set.value()->gradient_ready(i, view_of(gradients[i])));
    EXPECT_EQ(listener.wait_for(kShapes.size()).size(), kShapes.size());
    EXPECT_EQ(gradients[0][3], 2.5F);
    ASSERT_OK(set.value()->step_end(true));
  });
}

TEST(Results, WhatNoRankHandsInIsToldWhenTheStepCloses) {
  with_ranks(2, scheme_text("scheduler = \"wfbp\""), [](Runtime& runtime, uint32_t rank) {
    Listener listener;
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    ASSERT_OK(set.value()->on_result(&listener, Listener::hear));
    auto gradients = gradients_of(rank);
    ASSERT_OK(set.value()->gradient_ready(0, view_of(gradients[0])));
    // The gradient has its own bucket.
    EXPECT_EQ(listener.wait_for(1), (std::map<uint64_t, int>{{0, 1}}));
    ASSERT_OK(set.value()->step_end(true));
    EXPECT_EQ(listener.wait_for(0), (std::map<uint64_t, int>{{1, 1}, {2, 1}, {3, 1}}));
  });
}

TEST(Results, TheListenerChangesBetweenTwoStepsOnly) {
  with_ranks(2, scheme_text("scheduler = \"wfbp\""), [](Runtime& runtime, uint32_t rank) {
    Listener listener;
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    auto gradients = gradients_of(rank);
    ASSERT_OK(set.value()->gradient_ready(0, view_of(gradients[0])));
    const Status late = set.value()->on_result(&listener, Listener::hear);
    EXPECT_EQ(late.code(), Code::failed_precondition);
    EXPECT_NE(late.message().find("middle of step 0"), std::string::npos) << late.message();
    ASSERT_OK(set.value()->step_end(true));
    ASSERT_OK(set.value()->on_result(&listener, Listener::hear));
    ASSERT_OK(set.value()->on_result(nullptr, nullptr));
    ASSERT_OK(testing::run_step(*set.value(), gradients));
    EXPECT_TRUE(listener.wait_for(0).empty());
  });
}

TEST(Results, WhenTheRunIsGivenUpWhatIsStillAwaitedIsToldWhy) {
  with_ranks(2, scheme_text("scheduler = \"wfbp\""), [](Runtime& runtime, uint32_t rank) {
    Listener listener;
    auto gradients = gradients_of(rank);  // must outlive the set, which may read them
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    ASSERT_OK(set.value()->on_result(&listener, Listener::hear));
    if (rank == 1) {
      runtime.give_up(aborted("rank 1 has had enough"));
      return;
    }
    for (size_t i = 1; i < gradients.size(); ++i)
      if (!set.value()->gradient_ready(i, view_of(gradients[i])).ok()) return;  // aborted by then
    const auto results = listener.wait_for(kShapes.size() - 1);
    EXPECT_EQ(results.count(0), 0U);
    for (size_t i = 1; i < kShapes.size(); ++i) EXPECT_EQ(results.count(i), 1U) << i;
    EXPECT_NE(listener.error().find("has had enough"), std::string::npos) << listener.error();
  });
}

// A check for the thread sanitizer: the control thread reads the sink that the application sets.
TEST(Results, TheListenerChangesWhileTheRunIsGivenUp) {
  with_ranks(2, scheme_text("scheduler = \"wfbp\""), [](Runtime& runtime, uint32_t rank) {
    Listener listener;
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    if (rank == 1) {
      runtime.give_up(aborted("rank 1 has had enough"));
      return;
    }
    auto values = gradients_of(rank)[0];
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    bool is_given_up = false;
    while (!is_given_up && std::chrono::steady_clock::now() < end) {
      ASSERT_OK(set.value()->on_result(&listener, Listener::hear));
      ASSERT_OK(set.value()->on_result(nullptr, nullptr));
      bool done = false;
      ASSERT_OK(set.value()->poll(0, done));
      is_given_up = done;
    }
    EXPECT_TRUE(is_given_up);
    const Status refused = set.value()->gradient_ready(0, view_of(values));
    EXPECT_NE(refused.message().find("has had enough"), std::string::npos) << refused.message();
  });
}

TEST(Results, ARankThatHasLeftEndsTheStepOfWhoIsTold) {
  with_ranks(2, scheme_text("scheduler = \"wfbp\""), [](Runtime& runtime, uint32_t rank) {
    Listener listener;
    auto gradients = gradients_of(rank);  // must outlive the set, which may read them
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    ASSERT_OK(set.value()->on_result(&listener, Listener::hear));
    ASSERT_OK(testing::run_step(*set.value(), gradients));
    EXPECT_EQ(listener.wait_for(kShapes.size()).size(), kShapes.size());
    if (rank == 1) return;
    for (size_t i = 0; i < gradients.size(); ++i)
      if (!set.value()->gradient_ready(i, view_of(gradients[i])).ok()) return;  // aborted by then
    listener.wait_for(1);
    EXPECT_NE(listener.error().find("left"), std::string::npos) << listener.error();
  });
}

}  // namespace
}  // namespace penstock::results_test

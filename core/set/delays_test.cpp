// Ranks whose gradients become ready in different orders, after random delays, and sometimes not at
// all. Meanwhile plans are made from measured times. Every step must end, with the right means.

#include "core/set/training_testing.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <random>
#include <support/long.hpp>
#include <support/sanitized.hpp>

namespace penstock::delays_test {
namespace {

using testing::make_set;
using testing::Values;
using testing::view_of;
using testing::with_ranks;

constexpr uint32_t kRanks = 4;
constexpr size_t kGradients = 8;

// The gradients of a rank in a step, in its own order; a missing gradient counts as zero. Every
// rank can compute the gradients of the other ranks, so that it knows the mean.
struct Step {
  std::vector<size_t> order;
  std::vector<bool> taken = std::vector<bool>(kGradients, true);
};
Step step_of(uint32_t rank, uint32_t step) {
  std::mt19937 random(step * kRanks + rank);
  Step result;
  result.order.resize(kGradients);
  std::iota(result.order.begin(), result.order.end(), size_t{0});
  std::shuffle(result.order.begin(), result.order.end(), random);
  if (random() % 4 == 0) result.taken[random() % kGradients] = false;
  return result;
}

// Small integers over four ranks: sums and means are exact.
float value_of(uint32_t rank, uint32_t step, size_t gradient) {
  return static_cast<float>(4 * rank + step % 5 + gradient + 1);
}
float mean_of(uint32_t step, size_t gradient) {
  float sum = 0;
  for (uint32_t rank = 0; rank < kRanks; ++rank)
    if (step_of(rank, step).taken[gradient]) sum += value_of(rank, step, gradient);
  return sum / kRanks;
}

TEST(Delays, OfTenThousandReadyGradientsNeverDeadlockAndNeverChangeAMean) {
  const uint32_t delays = test::is_long() ? 10000 : test::kThreadsSanitized ? 200 : 1000;
  const uint32_t steps = delays / (kRanks * kGradients) + 1;
  const std::string scheme = testing::scheme_text(
      "compressor = \"none\"\nmemory = \"none\"\nscheduler = \"horovod\"",
      "[scheduler.horovod]\nprofile_steps = 2\ncycle_ms = 0.3\nmoved_share = 0.01\n");
  std::atomic<uint32_t> ended = 0;
  with_ranks(kRanks, scheme, [&](Runtime& runtime, uint32_t rank) {
    std::vector<testing::GradientShape> shapes;
    for (size_t g = 0; g < kGradients; ++g)
      shapes.push_back({"g" + std::to_string(g), {static_cast<int64_t>(1 + 50 * g)}});
    auto set = make_set(runtime, shapes);
    ASSERT_OK(set.status());
    std::mt19937 random(rank + 77);
    for (uint32_t step = 0; step < steps; ++step) {
      const Step mine = step_of(rank, step);
      Values gradients;
      for (size_t g = 0; g < kGradients; ++g)
        gradients.emplace_back(1 + 50 * g, value_of(rank, step, g));
      for (size_t g : mine.order) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
        if (mine.taken[g]) ASSERT_OK(set.value()->gradient_ready(g, view_of(gradients[g])));
      }
      ASSERT_OK(set.value()->wait_all());
      for (size_t g = 0; g < kGradients; ++g) {
        if (!mine.taken[g]) continue;
        for (float value : gradients[g])
          ASSERT_EQ(value, mean_of(step, g)) << "gradient " << g << ", step " << step;
      }
      ASSERT_OK(set.value()->step_end(true));
    }
    const auto report = set.value()->report();
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report.value().find("nothing is measured"), std::string::npos) << report.value();
    ++ended;
  });
  EXPECT_EQ(ended, kRanks);
}

}  // namespace
}  // namespace penstock::delays_test

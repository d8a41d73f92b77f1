// Fusion: greedy up to the threshold, compared with a plain loop. The limits per phase are scaled
// as in ACP-SGD.
#include <random>
#include <support/scheduling.hpp>

namespace penstock::test {
namespace {

using Buckets = std::vector<std::vector<uint64_t>>;

Buckets fused(const planning::ModelEntries& entries, int threshold_bytes, uint32_t phase = 0) {
  const SchedulerInstance scheduler =
      make_scheduler(PENSTOCK_PLUGIN_FILE, {{"threshold_bytes", threshold_bytes}});
  return gradients_of(plan_of(scheduler, planning::OwnedModel(entries)), phase);
}

// Ten gradients of 4, 8, ... 40 bytes, ready in order of their size.
planning::ModelEntries growing() {
  planning::ModelEntries entries;
  for (uint64_t i = 0; i < 10; ++i) {
    entries.gradients.push_back(planning::dense_gradient("g", i + 1));
    entries.order.push_back(i);
  }
  return entries;
}

TEST(Fusion, KeepsTheRulesOfEveryScheduler) {
  for (int threshold : {0, 1, 4096, 1 << 30})
    expect_the_common_rules(PENSTOCK_PLUGIN_FILE, {{"threshold_bytes", threshold}});
}

TEST(Fusion, LeavesGivenBucketsWhole) {
  for (int threshold : {0, 1 << 30})
    expect_given_buckets_stay_together(PENSTOCK_PLUGIN_FILE, {{"threshold_bytes", threshold}});
}

TEST(Fusion, RefusesAbsurdModels) {
  expect_absurd_models_are_refused(PENSTOCK_PLUGIN_FILE);
}

TEST(Fusion, FillsABucketToTheThresholdInclusive) {
  EXPECT_EQ(fused(growing(), 40), (Buckets{{0, 1, 2, 3}, {4}, {5}, {6}, {7}, {8}, {9}}));
  EXPECT_EQ(fused(growing(), 44), (Buckets{{0, 1, 2, 3}, {4, 5}, {6}, {7}, {8}, {9}}));
  EXPECT_EQ(fused(growing(), 220), (Buckets{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}}));
  EXPECT_EQ(fused(growing(), 219), (Buckets{{0, 1, 2, 3, 4, 5, 6, 7, 8}, {9}}));
}

TEST(Fusion, SendsWhatIsLargerThanTheThresholdAlone) {
  EXPECT_EQ(fused(growing(), 12), (Buckets{{0, 1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}}));
}

TEST(Fusion, ZeroSendsEveryGradientAloneEvenWithoutElements) {
  EXPECT_EQ(fused(growing(), 0).size(), 10u);
  planning::ModelEntries entries = growing();
  entries.gradients[3] = planning::dense_gradient("empty", 0);
  entries.gradients[4] = planning::dense_gradient("empty", 0);
  EXPECT_EQ(fused(entries, 0).size(), 10u);
}

TEST(Fusion, DefaultsToTwentyFiveMebibytes) {
  planning::ModelEntries entries;
  for (int i = 0; i < 51; ++i)
    entries.gradients.push_back(planning::dense_gradient("g", 1 << 17));  // half a MiB each
  const planning::Plan plan =
      plan_of(make_scheduler(PENSTOCK_PLUGIN_FILE), planning::OwnedModel(entries));
  EXPECT_EQ(counts_of(plan), (std::vector<uint64_t>{50, 1}));
}

TEST(Fusion, CompressionLeavesTheNumberOfBucketsAsItWas) {
  planning::ModelEntries dense = growing();
  planning::ModelEntries compressed = growing();
  for (planning::GradientEntry& gradient : compressed.gradients)
    gradient.candidates[0].phase_bytes = {gradient.bytes / 4};  // a quarter of everything
  for (int threshold : {0, 12, 40, 44, 100, 219, 220})
    EXPECT_EQ(fused(compressed, threshold), fused(dense, threshold)) << threshold;
}

// ACP-SGD's published rule, written independently: matrices send P in even steps and Q in odd
// steps, and vectors are sent whole in both. T_P = T * sum(p) / G and T_Q = T * sum(q) / G.
TEST(Fusion, PhasesHaveTheLimitsOfAcpSgd) {
  std::mt19937 random(11);
  planning::ModelEntries entries;
  entries.period = 2;
  constexpr uint64_t kRank = 4;
  std::vector<uint64_t> bytes[2];
  uint64_t dense = 0;
  for (int i = 0; i < 60; ++i) {
    const uint64_t rows = 16u << std::uniform_int_distribution<int>(0, 5)(random);
    const uint64_t cols = 16u << std::uniform_int_distribution<int>(0, 5)(random);
    const bool vector = i % 3 == 0;
    planning::GradientEntry gradient = planning::dense_gradient("g", vector ? rows : rows * cols);
    const uint64_t p = vector ? rows * 4 : rows * kRank * 4;
    const uint64_t q = vector ? rows * 4 : cols * kRank * 4;
    gradient.candidates[0].phase_bytes = {p, q};
    bytes[0].push_back(p);
    bytes[1].push_back(q);
    dense += gradient.bytes;
    entries.gradients.push_back(gradient);
    entries.order.push_back(static_cast<uint64_t>(i));
  }
  constexpr int kThreshold = 1 << 20;
  Buckets partitions[2];
  for (uint32_t phase = 0; phase < 2; ++phase) {
    uint64_t sum = 0;
    for (uint64_t size : bytes[phase]) sum += size;
    uint64_t filled = 0;
    for (uint64_t i = 0; i < 60; ++i) {
      const uint64_t next = bytes[phase][i];
      // filled + next <= T * sum / G, without division
      if (i == 0 || (filled + next) * dense > kThreshold * sum) {
        partitions[phase].emplace_back();
        filled = 0;
      }
      partitions[phase].back().push_back(i);
      filled += next;
    }
    EXPECT_EQ(fused(entries, kThreshold, phase), partitions[phase]);
    EXPECT_GT(partitions[phase].size(), 1u);
  }
  EXPECT_NE(partitions[0], partitions[1]) << "the test should tell the phases apart";
}

TEST(Fusion, ExplainsItsLimits) {
  planning::ModelEntries entries = growing();
  for (planning::GradientEntry& gradient : entries.gradients)
    gradient.candidates[0].phase_bytes = {gradient.bytes / 4};
  const SchedulerInstance scheduler =
      make_scheduler(PENSTOCK_PLUGIN_FILE, {{"threshold_bytes", 100}});
  const planning::Plan plan = plan_of(scheduler, planning::OwnedModel(entries));
  ASSERT_EQ(plan.explanation.size(), 1u);
  EXPECT_EQ(
      plan.explanation[0],
      "fusion: phase 0: 3 buckets of at most 25 bytes of payload (threshold 100 bytes, scaled "
      "by 55 bytes of payload for 220 bytes of gradients)");
}

}  // namespace
}  // namespace penstock::test

#include "core/plan/ownership.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace penstock::ownership_test {
namespace {

TEST(Ownership, CoversEachGradientOnceInAscendingRanges) {
  for (const uint32_t n : {1u, 2u, 3u, 8u}) {
    const std::vector<OwnableGradient> gradients{
        {0, 1, 1},    {1, 1, 1}, {100000, 0, 100}, {65537, 64, 1}, {3 * 4096, 64, 4096},
        {20000, 1, 1}};
    const Ownership ownership = share_out(gradients, n);
    for (size_t i = 0; i < gradients.size(); ++i) {
      uint64_t next = 0;
      for (const OwnedRange& range : ownership[i]) {
        EXPECT_EQ(range.first, next);
        EXPECT_LT(range.owner, n);
        EXPECT_EQ(range.first % std::max<uint64_t>(gradients[i].alignment, 1), 0u);
        EXPECT_TRUE(gradients[i].alignment != 0 || range.first == 0);
        next += range.numel;
      }
      EXPECT_EQ(next, gradients[i].numel);
      EXPECT_FALSE(ownership[i].empty());
    }
  }
}

TEST(Ownership, GivesWhatIsIndivisibleOrSmallToOneOwner) {
  const Ownership ownership = share_out({{1 << 20, 0, 1}, {2000, 1, 1}}, 4);
  EXPECT_EQ(ownership[0].size(), 1u);
  EXPECT_EQ(ownership[1].size(), 1u);
}

TEST(Ownership, KeepsRowsWholeWhereEachOwnerGetsOne) {
  const Ownership of_rows = share_out({{300 * 1000, 64, 1000}}, 4);
  for (const OwnedRange& range : of_rows[0]) EXPECT_EQ(range.first % 1000, 0u);
  const Ownership too_few = share_out({{2 * 50000, 64, 50000}}, 4);
  EXPECT_EQ(too_few[0].size(), 4u);
}

TEST(Ownership, BalancesWholeGradientsBySize) {
  std::vector<OwnableGradient> gradients;
  for (uint64_t i = 1; i <= 100; ++i) gradients.push_back({i * 1000, 0, 1});
  std::map<uint32_t, uint64_t> held;
  for (const auto& ranges : share_out(gradients, 7)) held[ranges[0].owner] += ranges[0].numel;
  for (const auto& [owner, elements] : held)
    EXPECT_NEAR(double(elements), 5050e3 / 7, 5050e3 * 0.01);
}

}  // namespace
}  // namespace penstock::ownership_test

// Route split: a sum that is reduced and scattered in backward, and passed on in the next forward.

#include "core/bucket/testing.hpp"

namespace penstock::halves_test {
namespace {

using testing::exactly;
using testing::PaperBucket;
using testing::ranks_on_one_host;
using testing::summed;

struct Halves : PaperBucket {
  Halves(uint32_t rank, uint32_t ranks, uint64_t numel)
      : PaperBucket(PENSTOCK_ROUTE_SPLIT, rank, ranks_on_one_host(ranks)) {
    item = &add("w", numel, {summed({exactly(numel)})});
  }
  MessageRun& scatter() { return message(0, 0); }
  MessageRun& collect() { return message(0, 1); }
  ItemRun* item;
};

TEST(Halves, AreSharesOfWhichTheFirstAreLongerByOne) {
  for (uint32_t rank = 0; rank < 4; ++rank) {
    Halves halves(rank, 4, 13);  // plus a flag
    ASSERT_OK(halves.lay_out());
    const MessageRun& scatter = halves.scatter();
    const MessageRun& collect = halves.collect();
    EXPECT_EQ(scatter.name(), "sum");
    EXPECT_EQ(collect.name(), "shares");
    EXPECT_EQ(scatter.message.pattern, uint32_t{PENSTOCK_REDUCE_SCATTER});
    EXPECT_EQ(collect.message.pattern, uint32_t{PENSTOCK_ALL_GATHER});
    EXPECT_EQ(collect.message.flags, uint32_t{PENSTOCK_MESSAGE_EXACT_COUNTS});
    const std::vector<uint64_t> shares{4, 4, 3, 3}, offsets{0, 4, 8, 11};
    EXPECT_EQ(scatter.receive_counts, shares);
    EXPECT_EQ(collect.receive_counts, shares);
    EXPECT_EQ(collect.receive_offsets, offsets);
    EXPECT_EQ(scatter.message.count, 14u);
    EXPECT_EQ(collect.message.count, shares[rank]);
    EXPECT_EQ(collect.send.bytes(), 4 * shares[rank]);
    for (const MessageRun* half : {&scatter, &collect}) {
      EXPECT_TRUE(half->has_flag);
      EXPECT_EQ(half->flag_index, 13u);
      EXPECT_EQ(half->items, std::vector<size_t>{0});
    }
  }
}

TEST(Halves, TheShareThatArrivesIsTheOneThatIsPassedOn) {
  Halves halves(1, 2, 9);
  ASSERT_OK(halves.lay_out());
  const MessageRun& scatter = halves.scatter();
  const MessageRun& collect = halves.collect();
  EXPECT_EQ(scatter.message.send, scatter.send.data());
  EXPECT_EQ(scatter.message.receive, collect.send.data());
  EXPECT_EQ(collect.message.send, collect.send.data());
  // Decode expects the sum where all shares together are.
  EXPECT_EQ(collect.message.receive, halves.item->received[0][0].section(0).data);
  EXPECT_EQ(scatter.message.receive_counts, scatter.receive_counts.data());
  EXPECT_EQ(collect.message.receive_counts, collect.receive_counts.data());
  EXPECT_EQ(collect.message.receive_offsets, collect.receive_offsets.data());
}

TEST(Halves, OfWhatIsKeptComeBackBesideIt) {
  Halves halves(0, 2, 5);
  halves.item->keeps = true;
  ASSERT_OK(halves.lay_out());
  EXPECT_EQ(halves.collect().message.receive, halves.scatter().receive.data());
  EXPECT_NE(halves.scatter().receive.data(), halves.scatter().send.data());
}

TEST(Halves, RanksBeyondTheElementsHaveNone) {
  Halves halves(5, 6, 2);  // 3 with the flag
  ASSERT_OK(halves.lay_out());
  EXPECT_EQ(halves.scatter().receive_counts, (std::vector<uint64_t>{1, 1, 1, 0, 0, 0}));
  EXPECT_EQ(halves.collect().receive_offsets, (std::vector<uint64_t>{0, 1, 2, 3, 3, 3}));
  EXPECT_EQ(halves.collect().message.count, 0u);
}

TEST(Halves, OneRankPassesAllToItself) {
  Halves halves(0, 1, 4);
  ASSERT_OK(halves.lay_out());
  EXPECT_EQ(halves.scatter().receive_counts, std::vector<uint64_t>{5});
  EXPECT_EQ(halves.collect().message.count, 5u);
}

TEST(Halves, OfIntegersAreFollowedByTheirFlagInTheSecondLeg) {
  PaperBucket paper(PENSTOCK_ROUTE_SPLIT, 0, ranks_on_one_host(2));
  paper.add("w", 5, {summed({exactly(5, PENSTOCK_INT32)})});
  ASSERT_OK(paper.lay_out());
  ASSERT_EQ(paper.messages(0).size(), 1u);
  ASSERT_EQ(paper.messages(1).size(), 2u);
  EXPECT_FALSE(paper.message(0, 1).has_flag);
  EXPECT_EQ(paper.message(1, 1).name(), "flag");
}

}  // namespace
}  // namespace penstock::halves_test

// Layouts of messages that carry each payload separately or joined by a composite, and of messages
// that carry uncompressed values within a host.

#include "core/bucket/gathers.hpp"
#include "core/bucket/testing.hpp"

namespace penstock::gathers_test {
namespace {

using testing::exactly;
using testing::gathered;
using testing::pairs;
using testing::PaperBucket;
using testing::ranks_on_one_host;
using testing::summed;
using testing::up_to;

using Numbers = std::vector<uint64_t>;
using Positions = std::vector<size_t>;

bool is_exact(const MessageRun& message) {
  return (message.message.flags & PENSTOCK_MESSAGE_EXACT_COUNTS) != 0;
}

const Numbers& room_for(const MessageRun& message) {
  return dynamic_cast<const GatherMessage&>(message).room_for;
}

// ---- Gathers of all ranks ----

TEST(GatheredMessages, HaveRoomForAPartOfEachRank) {
  for (const uint32_t ranks : {1u, 3u, 257u}) {
    PaperBucket paper(ranks - 1, ranks);
    paper.add("w", 40, {pairs(3)});  // 16 for the header, 12 and 12 rounded up to multiples of 8
    ASSERT_OK(paper.lay_out());
    ASSERT_EQ(paper.messages().size(), 1u);
    const MessageRun& message = paper.message();
    EXPECT_EQ(message.name(), "gather");
    EXPECT_EQ(message.message.pattern, uint32_t{PENSTOCK_ALL_GATHER});
    EXPECT_EQ(message.message.dtype, uint32_t{PENSTOCK_UINT8});
    EXPECT_EQ(message.send_counts, Numbers{48});
    EXPECT_EQ(message.send_offsets, Numbers{0});
    EXPECT_EQ(message.send.bytes(), 48u);
    EXPECT_EQ(message.message.count, 48u);
    EXPECT_EQ(message.receive.bytes(), 48u * ranks);
    EXPECT_EQ(room_for(message), Numbers(ranks, 48));
    EXPECT_EQ(message.receive_counts, Numbers(ranks, 48));
    for (uint32_t rank = 0; rank < ranks; ++rank)
      ASSERT_EQ(message.receive_offsets[rank], 48u * rank);
    EXPECT_EQ(message.message.send, message.send.data());
    EXPECT_EQ(message.message.receive, message.receive.data());
    EXPECT_EQ(message.message.receive_counts, message.receive_counts.data());
    EXPECT_EQ(message.message.receive_offsets, message.receive_offsets.data());
  }
}

// The example of docs/payloads.md: top-k at 1 % of a matrix, and an uncompressed vector.
TEST(GatheredMessages, StandBesideTheSumsOfTheirBucket) {
  PaperBucket paper(0, 2);
  paper.add("matrix", 300'000, {pairs(3000)});
  paper.add("vector", 300, {summed({exactly(300)})});
  ASSERT_OK(paper.lay_out());
  ASSERT_EQ(paper.messages().size(), 2u);
  EXPECT_EQ(paper.message(0).send.bytes(), 1204u);
  EXPECT_EQ(paper.message(0).items, Positions{1});
  EXPECT_EQ(paper.message(1).send_counts, Numbers{24'040});  // 24'016 + 23, rounded up to 8
  EXPECT_EQ(paper.message(1).items, Positions{0});
}

TEST(GatheredMessages, CountsNeedNotTravelWhereEverySectionIsExact) {
  const RoundNeed exact = gathered({exactly(4, PENSTOCK_UINT8), exactly(1)});
  PaperBucket all(0, 2), one_varies(0, 2);
  for (PaperBucket* paper : {&all, &one_varies}) {
    paper->add("first", 4, {exact});
    paper->add("empty", 0, {gathered({})});
  }
  one_varies.add("last", 4, {gathered({exactly(4, PENSTOCK_UINT8), up_to(1)})});
  ASSERT_OK(all.lay_out());
  ASSERT_OK(one_varies.lay_out());
  EXPECT_TRUE(is_exact(all.message()));
  EXPECT_FALSE(is_exact(one_varies.message()));
}

TEST(GatheredMessages, WithCodedIndicesHaveCountsThatTravelAndRoomForIndicesAsTheyAre) {
  const RoundNeed exact =
      gathered({{40, PENSTOCK_ROLE_INDICES, PENSTOCK_UINT32, true}, exactly(40)});
  PaperBucket paper(1, 3);
  paper.add("coded", 4000, {exact});
  paper.add("few", 4000, {pairs(31)});
  ASSERT_OK(paper.lay_out());
  const MessageRun& message = paper.message();
  EXPECT_FALSE(is_exact(message));
  // The header, 28 rounded up to 32; 160 + 23 rounded up to 184; 160; 124 rounded up to 128, twice.
  EXPECT_EQ(message.send_counts, Numbers{32 + 184 + 160 + 128 + 128});
  EXPECT_EQ(message.message.count, 632u);
  EXPECT_EQ(message.send.bytes(), 632u + 160);
  EXPECT_EQ(room_for(message), Numbers(3, 632));
  EXPECT_EQ(message.receive.bytes(), 3 * (632u + 160));
  const auto& gather = dynamic_cast<const GatherMessage&>(message);
  EXPECT_EQ(gather.uncoded_offset, 632u);
  EXPECT_EQ(gather.decoded_offsets, (Numbers{3 * 632, 3 * 632 + 160, 3 * 632 + 320}));
}

TEST(GatheredMessages, OfARoundHoldTheItemsThatHaveIt) {
  PaperBucket paper(0, 2);
  paper.add("one", 4, {pairs(1)});
  paper.add("two", 4, {pairs(1), gathered({up_to(4)})});
  ASSERT_OK(paper.lay_out());
  EXPECT_EQ(paper.message(0, 0, 0).items, (Positions{0, 1}));
  ASSERT_EQ(paper.messages(0, 1).size(), 1u);
  EXPECT_EQ(paper.message(0, 0, 1).items, Positions{1});
  EXPECT_EQ(paper.message(0, 0, 1).send.bytes(), 32u);  // 4 + 8 rounded up to 16, and 16
}

// ---- To owners and from them ----

// Two gradients in a world of three: rank 0 owns "a", rank 2 owns "b".
struct Shards : PaperBucket {
  explicit Shards(uint32_t rank) : PaperBucket(PENSTOCK_ROUTE_SHARD, rank, ranks_on_one_host(3)) {
    const auto share = [&](const char* name, uint64_t numel, uint32_t owner) {
      ItemRun& part = add(name, numel, {gathered({up_to(numel)})});
      ItemRun& sum = add_item(1, *part.of, part.range, part.rounds);
      part.owner = sum.owner = owner;
      part.decodes = sum.encodes = owner == rank;
      part.sum = &sum;
      sum.sum_of = &part;
    };
    share("a", 4, 0);  // 12 rounded up to 16, and 16
    share("b", 2, 2);  // 12 rounded up to 16, and 8
  }
};

TEST(ShardMessages, EachOwnerIsSentItsPartAndNothingElse) {
  for (uint32_t rank = 0; rank < 3; ++rank) {
    Shards shards(rank);
    ASSERT_OK(shards.lay_out());
    const MessageRun& message = shards.message(0, 0);
    EXPECT_EQ(message.message.pattern, uint32_t{PENSTOCK_ALL_TO_ALL});
    EXPECT_EQ(message.by_owner, (std::vector<Positions>{{0}, {}, {1}}));
    EXPECT_EQ(message.send_counts, (Numbers{32, 8, 24}));  // a rank without gradients gets flags
    EXPECT_EQ(message.send_offsets, (Numbers{0, 32, 40}));
    EXPECT_EQ(message.send.bytes(), 64u);
    EXPECT_EQ(message.message.send_counts, message.send_counts.data());
    const uint64_t from_each = Numbers{32, 8, 24}[rank];
    EXPECT_EQ(room_for(message), Numbers(3, from_each));
    EXPECT_EQ(message.receive_offsets, (Numbers{0, from_each, 2 * from_each}));
    EXPECT_EQ(message.receive.bytes(), 3 * from_each);
  }
}

TEST(ShardMessages, EachOwnerSendsItsSumsToAll) {
  for (uint32_t rank = 0; rank < 3; ++rank) {
    Shards shards(rank);
    ASSERT_OK(shards.lay_out());
    const MessageRun& message = shards.message(0, 1);
    EXPECT_EQ(message.message.pattern, uint32_t{PENSTOCK_ALL_GATHER});
    EXPECT_EQ(message.send_counts, (Numbers{Numbers{32, 8, 24}[rank]}));
    EXPECT_EQ(room_for(message), (Numbers{32, 8, 24}));
    EXPECT_EQ(message.receive_offsets, (Numbers{0, 32, 40}));
    EXPECT_EQ(message.receive.bytes(), 64u);
  }
}

TEST(ShardMessages, ASumThatARankAddsToAndDoesNotReceiveIsRefused) {
  PaperBucket paper(PENSTOCK_ROUTE_SHARD, 1, {0, 0});
  paper.add("w", 4, {summed({exactly(4)})}).decodes = false;
  EXPECT_EQ(paper.lay_out().code(), Code::internal);
}

// ---- Within a host and between hosts ----

// Rank 1 of two hosts with two ranks each.
struct Hosts : PaperBucket {
  Hosts() : PaperBucket(PENSTOCK_ROUTE_HIERARCHICAL, 1, {0, 0, 1, 1}) {
    for (const auto& [name, numel, owner] :
         {std::tuple("a", 6u, 0u), std::tuple("b", 4u, 1u), std::tuple("c", 3u, 1u)}) {
      ItemRun& item = add(name, numel, {summed({exactly(numel)})});
      item.owner = owner;
      item.encodes = item.decodes = owner == 1;
    }
  }
  ItemRun& item(size_t number) { return coding().items[number]; }
};

TEST(HostMessages, SharesFollowEachOtherByOwnerEachWithAFlag) {
  Hosts hosts;
  ASSERT_OK(hosts.lay_out());
  const MessageRun& scattered = hosts.message(0, 0);
  EXPECT_EQ(scattered.name(), "scattered");
  EXPECT_EQ(scattered.message.pattern, uint32_t{PENSTOCK_REDUCE_SCATTER});
  EXPECT_EQ(scattered.link, &hosts.context.at(PENSTOCK_LEVEL_LOCAL).transport);
  EXPECT_EQ(scattered.by_owner, (std::vector<Positions>{{0}, {1, 2}}));
  EXPECT_EQ(scattered.receive_counts, (Numbers{7, 8}));
  EXPECT_EQ(scattered.message.count, 15u);
  EXPECT_EQ(scattered.send.bytes(), 60u);
  // The received share is the data for the exchange between hosts.
  const auto* const share = static_cast<const std::byte*>(scattered.message.receive);
  EXPECT_EQ(hosts.item(0).share, nullptr);
  EXPECT_EQ(hosts.item(1).share, share);
  EXPECT_EQ(hosts.item(2).share, share + 16);

  const MessageRun& spread = hosts.message(0, 2);
  EXPECT_EQ(spread.name(), "spread");
  EXPECT_EQ(spread.message.pattern, uint32_t{PENSTOCK_ALL_GATHER});
  EXPECT_EQ(spread.message.send, share);
  EXPECT_EQ(spread.message.count, 8u);
  EXPECT_EQ(spread.message.receive, scattered.send.data());
  EXPECT_EQ(spread.receive_counts, (Numbers{7, 8}));
  EXPECT_EQ(spread.receive_offsets, (Numbers{0, 7}));
  EXPECT_TRUE(is_exact(spread));
}

TEST(HostMessages, OwnersOfOneShareMeetAcrossHosts) {
  Hosts hosts;
  ASSERT_OK(hosts.lay_out());
  ASSERT_EQ(hosts.messages(1).size(), 1u);
  const MessageRun& sum = hosts.message(0, 1);
  EXPECT_EQ(sum.link, &hosts.context.at(PENSTOCK_LEVEL_CROSS).transport);
  EXPECT_EQ(sum.items, (Positions{1, 2}));
  EXPECT_EQ(sum.message.count, 8u);  // 4, 3 and the flag
  EXPECT_EQ(sum.message.leg, 1u);
}

TEST(HostMessages, WhoOwnsNothingExchangesNothingAcrossHosts) {
  Hosts hosts;
  for (ItemRun& item : hosts.coding().items) {
    item.owner = 0;
    item.encodes = item.decodes = false;
  }
  ASSERT_OK(hosts.lay_out());
  EXPECT_EQ(hosts.message(0, 0).receive_counts, (Numbers{14, 1}));  // the owner has its own flag
  ASSERT_EQ(hosts.bucket.legs[1].messages.size(), 1u);
  EXPECT_TRUE(hosts.messages(1).empty());
}

TEST(HostMessages, TypesHaveSharesOfTheirOwn) {
  Hosts hosts;
  hosts.item(1).dtype = PENSTOCK_FLOAT16;
  ASSERT_OK(hosts.lay_out());
  ASSERT_EQ(hosts.messages(0).size(), 2u);
  EXPECT_EQ(hosts.message(0, 0).receive_counts, (Numbers{7, 4}));
  EXPECT_EQ(hosts.message(1, 0).receive_counts, (Numbers{1, 5}));
  EXPECT_EQ(hosts.message(1, 0).send.bytes(), 12u);
}

TEST(HostMessages, WhatIsOnlyCompensatedDoesNotComeBack) {
  Hosts hosts;
  hosts.bucket.only_compensates = true;
  for (ItemRun& item : hosts.coding().items) item.rounds.clear();
  ASSERT_OK(hosts.lay_out());
  ASSERT_EQ(hosts.bucket.legs.size(), 2u);
  EXPECT_EQ(hosts.messages(0).size(), 1u);
  EXPECT_FALSE(hosts.bucket.legs[1].sends());
}

}  // namespace
}  // namespace penstock::gathers_test

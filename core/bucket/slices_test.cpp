// Gathers in slices of ranks: which memory and which messages a bucket has, and what it reads from
// each slice.

#include "core/bucket/slices.hpp"

#include "core/bucket/gathered_testing.hpp"

namespace penstock::slices_test {
namespace {

using testing::exactly;
using testing::gathered;
using testing::pairs;
using testing::PaperBucket;
using testing::Part;
using testing::ranks_on_one_host;
using testing::summed;

using Numbers = std::vector<uint64_t>;

// Bytes of three pairs: 16 for the header of one item, 12 and 12 rounded up to multiples of 8.
constexpr uint64_t kPart = 48;

// A bucket of rank 1 of 5 with slices of two ranks.
struct Sliced : PaperBucket {
  explicit Sliced(uint32_t route = PENSTOCK_ROUTE_FLAT,
                  const std::vector<uint32_t>& hosts = ranks_on_one_host(5))
      : PaperBucket(route, 1, hosts) {
    bucket.ranks_at_once = 2;
  }
  GatherSlice& slice(size_t number) { return dynamic_cast<GatherSlice&>(message(number)); }
  // Puts the part of a rank where a transport would put it.
  void arrive(const GatherSlice& slice, uint32_t rank, const std::string& part) {
    const GatherMessage& whole = *slice.whole;
    ASSERT_LE(part.size(), whole.room_for[rank]);
    std::memcpy(whole.receive.data() + whole.receive_offsets[rank], part.data(), part.size());
    slice.whole->receive_counts[rank] = part.size();
  }
};

std::string pair_of(uint32_t index, float value) {
  return Part().words({0, PENSTOCK_PAYLOAD_SPARSE, 1, 1, index, 0}).floats({value, 0}).bytes();
}
const std::string kAbsent = Part().words({0, PENSTOCK_PAYLOAD_ABSENT, 0, 0}).bytes();

TEST(GatherSlices, ShareTheMemoryOfAsManyRanksAsComeAtOnce) {
  for (const uint32_t ranks : {3u, 5u, 257u}) {
    PaperBucket paper(1, ranks);
    paper.bucket.ranks_at_once = 2;
    ItemRun& item = paper.add("w", 40, {pairs(3)});
    ASSERT_OK(paper.lay_out());
    ASSERT_EQ(paper.messages().size(), (ranks + 1) / 2);
    EXPECT_EQ(item.received[0].size(), 2u);
    for (size_t number = 0; number < paper.messages().size(); ++number) {
      const auto& slice = dynamic_cast<const GatherSlice&>(paper.message(number));
      EXPECT_EQ(slice.first, 2 * number);
      EXPECT_EQ(slice.end, std::min<uint32_t>(2 * number + 2, ranks));
      EXPECT_EQ(slice.whole->receive.bytes(), 2 * kPart);
      EXPECT_EQ(slice.message.receive, slice.whole->receive.data());
      EXPECT_EQ(slice.whole->receive_offsets[ranks - 1], (ranks - 1) % 2 * kPart);
      EXPECT_EQ(slice.message.count, slice.brings(1) ? kPart : 0u);
      EXPECT_EQ(slice.has_own_stage, number > 0);
    }
  }
}

TEST(GatherSlices, AreOfGathersThatMayBeDecodedInSeveralCalls) {
  Sliced paper;
  RoundNeed vote = pairs(3);
  vote.flags = PENSTOCK_ROUND_ALL_PAYLOADS;
  paper.add("sliced", 40, {pairs(3)});
  paper.add("vote", 40, {vote});
  paper.add("sum", 40, {summed({exactly(40)})});
  ASSERT_OK(paper.lay_out());
  ASSERT_EQ(paper.messages().size(), 5u);
  EXPECT_EQ(paper.message(0).items, std::vector<size_t>{2});
  EXPECT_EQ(paper.message(1).items, std::vector<size_t>{1});
  EXPECT_EQ(paper.message(1).receive.bytes(), 5 * kPart);
  for (size_t number : {2u, 3u, 4u})
    EXPECT_EQ(paper.slice(number).whole->items, std::vector<size_t>{0});
  std::vector<uint32_t> flags;
  for (const CompressorCall& call : paper.coding().decode_calls) flags.push_back(call.flags);
  const uint32_t all = PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST;
  EXPECT_EQ(flags, (std::vector<uint32_t>{PENSTOCK_DECODE_FIRST, all, all}));
  EXPECT_EQ(paper.coding().encode_calls.size(), 2u) << "encode may choose among all items";
}

TEST(GatherSlices, AreNotMadeIfAllRanksFit) {
  for (const uint32_t at_once : {2u, 3u}) {
    PaperBucket paper(0, 2);
    paper.bucket.ranks_at_once = at_once;
    paper.add("w", 40, {pairs(3)});
    ASSERT_OK(paper.lay_out());
    EXPECT_EQ(paper.messages().size(), 1u);
    EXPECT_EQ(paper.coding().prologue, nullptr);
    EXPECT_FALSE(has_slices(paper.bucket, paper.coding()));
  }
}

TEST(GatherSlices, AreNotMadeForOwners) {
  Sliced paper(PENSTOCK_ROUTE_SHARD);
  ItemRun& part = paper.add("w", 40, {pairs(3)});
  ItemRun& sum = paper.add_item(1, paper.bucket.pieces.front(), {0, 40}, {pairs(3)});
  part.owner = sum.owner = 1;
  part.sum = &sum;
  sum.sum_of = &part;
  EXPECT_FALSE(has_slices(paper.bucket, paper.coding(0)));
  EXPECT_FALSE(has_slices(paper.bucket, paper.coding(1)));
}

// A later slice must not say that a bucket is void whose first slice has been decoded.
TEST(GatherSlices, FollowAPrologue) {
  Sliced paper;
  paper.add("w", 40, {pairs(3)});
  ASSERT_OK(paper.lay_out());
  ASSERT_NE(paper.coding().prologue, nullptr);
}

TEST(GatherSlices, CarryThePayloadsOfTheirRanksAlone) {
  Sliced paper;
  ItemRun& item = paper.add("w", 40, {pairs(3)});
  ASSERT_OK(paper.lay_out());
  Leg& leg = paper.bucket.legs[0];
  for (auto& message : leg.messages[0]) ASSERT_OK(message->before_encode(0));
  item.own[0].c()->kind = PENSTOCK_PAYLOAD_SPARSE;
  item.own[0].section(0).count = item.own[0].section(1).count = 1;
  *static_cast<uint32_t*>(item.own[0].section(0).data) = 9;
  *static_cast<float*>(item.own[0].section(1).data) = 2.5f;

  const std::vector<Numbers> rooms = {
      {kPart, kPart, 0, 0, 0}, {0, 0, kPart, kPart, 0}, {0, 0, 0, 0, kPart}};
  for (size_t number = 0; number < 3; ++number) {
    GatherSlice& slice = paper.slice(number);
    ASSERT_OK(slice.prepare(leg, 0));
    EXPECT_EQ(slice.whole->receive_counts, rooms[number]);
    EXPECT_EQ(slice.message.count, number == 0 ? 32u : 0u);
  }
  EXPECT_EQ(std::string(static_cast<const char*>(paper.slice(0).message.send), 32),
            pair_of(9, 2.5f));
}

TEST(GatherSlices, AreReadIntoTheSamePayloads) {
  Sliced paper;
  ItemRun& item = paper.add("w", 40, {pairs(3)});
  ASSERT_OK(paper.lay_out());
  Leg& leg = paper.bucket.legs[0];
  const auto value = [&](uint32_t rank) {
    EXPECT_EQ(item.arrival(0, rank).c()->rank, int32_t(rank));
    return *static_cast<const float*>(item.arrival(0, rank).section(1).data);
  };
  paper.arrive(paper.slice(0), 0, pair_of(3, 10));
  paper.arrive(paper.slice(0), 1, pair_of(4, 11));
  for (auto& message : leg.messages[0]) ASSERT_OK(message->read(leg, 0));  // only the first slice
  EXPECT_EQ(value(0), 10);
  EXPECT_EQ(value(1), 11);

  paper.arrive(paper.slice(1), 2, kAbsent);
  paper.arrive(paper.slice(1), 3, pair_of(5, 13));
  ASSERT_OK(paper.slice(1).take(0));
  EXPECT_EQ(item.arrival(0, 2).c()->kind, uint32_t{PENSTOCK_PAYLOAD_ABSENT});
  EXPECT_EQ(value(3), 13);

  paper.arrive(paper.slice(2), 4, pair_of(6, 14));
  ASSERT_OK(paper.slice(2).take(0));
  EXPECT_EQ(value(4), 14);
}

TEST(GatherSlices, NameTheRankOfABadPayload) {
  Sliced paper;
  paper.add("w", 40, {pairs(3)});
  ASSERT_OK(paper.lay_out());
  paper.arrive(paper.slice(1), 2, kAbsent);
  paper.arrive(paper.slice(1), 3, Part().words({0, PENSTOCK_PAYLOAD_SPARSE, 4, 4}).bytes());
  const Status status = paper.slice(1).take(0);
  EXPECT_EQ(status.code(), Code::invalid_payload);
  EXPECT_NE(status.message().find("the message of rank 3 for gradient 'w' claims 4 elements"),
            std::string::npos)
      << status.message();
}

TEST(GatherSlices, EchoTheOwnPayloadInATrial) {
  Sliced paper;
  ItemRun& item = paper.add("w", 40, {pairs(3)});
  ASSERT_OK(paper.lay_out());
  Leg& leg = paper.bucket.legs[0];
  for (auto& message : leg.messages[0]) ASSERT_OK(message->before_encode(0));
  item.own[0].absent();
  for (size_t number = 0; number < 3; ++number) {
    ASSERT_OK(paper.slice(number).prepare(leg, 0));
    paper.slice(number).echo(0);
    ASSERT_OK(paper.slice(number).take(0));
  }
}

}  // namespace
}  // namespace penstock::slices_test

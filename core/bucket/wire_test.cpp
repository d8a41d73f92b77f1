// The bytes of a rank's part of a gathered message, and the refusal of invalid parts.

#include "core/bucket/wire.hpp"

#include "core/bucket/gathered_testing.hpp"

#include <cstring>

namespace penstock::wire_test {
namespace {

using testing::exactly;
using testing::Gathered;
using testing::gathered;
using testing::pairs;
using testing::Part;
using testing::up_to;

// ---- Sizes ----

TEST(Wire, AHeaderHasOneWordForFlagsAndForEachItemItsKindAndCounts) {
  Gathered gathered_one(0, 1);
  const std::vector<SectionNeed> two{up_to(5), up_to(5)};
  gathered_one.add("none", 5, {gathered({})});
  gathered_one.add("one", 5, {gathered({up_to(5)})});
  gathered_one.add("two", 5, {gathered(two)});
  const Coding& coding = gathered_one.coding();
  EXPECT_EQ(header_bytes(coding, {}, 0), 8u);          // 4 and zeros
  EXPECT_EQ(header_bytes(coding, {0}, 0), 8u);         // 4 + 4
  EXPECT_EQ(header_bytes(coding, {1}, 0), 16u);        // 4 + 8 and zeros
  EXPECT_EQ(header_bytes(coding, {2}, 0), 16u);        // 4 + 12
  EXPECT_EQ(header_bytes(coding, {2, 1}, 0), 24u);     // 4 + 12 + 8
  EXPECT_EQ(header_bytes(coding, {0, 1, 2}, 0), 32u);  // 4 + 4 + 8 + 12 and zeros
}

TEST(Wire, EachRoundHasSectionsOfItsOwn) {
  Gathered rounds(0, 1);
  rounds.add("w", 9, {gathered({up_to(9)}), gathered({up_to(1), up_to(1), up_to(1)})});
  EXPECT_EQ(gathered_capacity(rounds.coding(), {0}, 0), 16u + 40u);  // 36 and zeros
  EXPECT_EQ(gathered_capacity(rounds.coding(), {0}, 1), 24u + 3 * 8u);
}

// The example of docs/payloads.md.
TEST(Wire, TopkAtOnePercentOfAMatrixTakesAtMost24040Bytes) {
  Gathered matrix(0, 1);
  matrix.add("matrix", 300'000, {pairs(3000)});
  // 24'016, plus 23 that a coded section may have beyond its raw form, rounded up to a multiple of
  // 8.
  EXPECT_EQ(gathered_capacity(matrix.coding(), {0}, 0), 24'040u);
}

TEST(Wire, SizesBeyond32BitsAreNotCutOff) {
  Gathered large(0, 1);
  large.add("a", uint64_t{1} << 33, {pairs(0xffffffff)});
  large.add("b", uint64_t{1} << 33, {gathered({up_to(0xffffffff, PENSTOCK_FLOAT64)})});
  constexpr uint64_t kWord = 17'179'869'184, kDouble = 34'359'738'360;  // 4 and 8 times 2^32 - 1
  EXPECT_EQ(sections_capacity(large.coding(), {0}, 0), 2 * kWord);
  EXPECT_EQ(sections_capacity(large.coding(), {0, 1}, 0), 2 * kWord + kDouble);
  EXPECT_EQ(gathered_capacity(large.coding(), {0, 1}, 0), 2 * kWord + kDouble + 24);
}

// ---- Places ----

TEST(Wire, SectionsBeginAtMultiplesOf8BytesBehindTheHeader) {
  Gathered odd(0, 2);
  ItemRun& scaled = odd.add(
      "scaled", 9, {gathered({up_to(9, PENSTOCK_UINT32), up_to(9, PENSTOCK_INT8), exactly(1)})});
  ItemRun& empty = odd.add("empty", 0, {gathered({up_to(0)})});
  ItemRun& bytes = odd.add("bytes", 77, {gathered({up_to(77, PENSTOCK_UINT8)})});
  ItemRun& half = odd.add("half", 5, {gathered({exactly(5, PENSTOCK_FLOAT16)})});
  // The header has 4 + 16 + 8 + 8 + 8 = 44 bytes, then the sections have 36, 9, 4, 0, 77 and 10.
  EXPECT_EQ(gathered_capacity(odd.coding(), {0, 1, 2, 3}, 0), 208u);
  odd.open();
  odd.place({208});
  const auto at = [&](ItemRun& item, size_t s) {
    return odd.offset(item.own[0].section(s).data, odd.message->send);
  };
  EXPECT_EQ(at(scaled, 0), 48);
  EXPECT_EQ(at(scaled, 1), 88);
  EXPECT_EQ(at(scaled, 2), 104);
  EXPECT_EQ(at(empty, 0), 112);
  EXPECT_EQ(at(bytes, 0), 112);
  EXPECT_EQ(at(half, 0), 192);
}

TEST(Wire, PlacesAreGivenAnewInEveryStep) {
  Gathered again(0, 1);
  ItemRun& item = again.add("w", 4, {pairs(4)});
  again.open();
  again.place({48});
  again.encode<uint32_t>(item, PENSTOCK_PAYLOAD_SPARSE, 0, {1});
  again.encode<float>(item, PENSTOCK_PAYLOAD_SPARSE, 1, {5});
  item.own[0].section(1).on_host = &again;
  ASSERT_OK(again.close());
  EXPECT_EQ(again.offset(item.own[0].section(1).data, again.message->send), 24);
  ASSERT_OK(again.message->before_encode(0));
  EXPECT_EQ(again.offset(item.own[0].section(1).data, again.message->send), 32);
  for (size_t s = 0; s < 2; ++s) {
    EXPECT_EQ(item.own[0].section(s).count, 0u);
    EXPECT_EQ(item.own[0].section(s).on_host, nullptr);
  }
}

TEST(Wire, AnAllToAllHasAPartForEachOwner) {
  Gathered owned(0, 3);
  ItemRun& first = owned.add("first", 2, {gathered({up_to(2)})});
  ItemRun& second = owned.add("second", 3, {gathered({up_to(3)})});
  owned.open(PENSTOCK_ALL_TO_ALL);
  owned.message->by_owner = {{1}, {}, {0}};
  owned.place({32, 8, 24});
  EXPECT_EQ(owned.offset(second.own[0].section(0).data, owned.message->send), 16);
  EXPECT_EQ(owned.offset(first.own[0].section(0).data, owned.message->send), 40 + 16);
}

// ---- Closing ----

TEST(Wire, WhatWasEncodedMovesTogetherAndGapsAreZeros) {
  Gathered sender(0, 2);
  ItemRun& sparse = sender.add("sparse", 40, {pairs(30)});
  ItemRun& absent = sender.add("absent", 7, {gathered({up_to(7)})});
  ItemRun& coded = sender.add("coded", 30, {gathered({up_to(30, PENSTOCK_UINT8)})});
  sender.open();
  sender.place({32 + 120 + 120 + 32 + 32});
  sender.encode<uint32_t>(sparse, PENSTOCK_PAYLOAD_SPARSE, 0, {3, 17, 39});
  sender.encode<float>(sparse, PENSTOCK_PAYLOAD_SPARSE, 1, {1.5f, -2, 4});
  absent.own[0].absent();
  sender.encode<char>(coded, PENSTOCK_PAYLOAD_CODED, 0,
                      {'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i'});
  ASSERT_OK(sender.close());
  Part expected;
  expected.words({0, 3, 3, 3, 1, 0, 4, 9});
  expected.words({3, 17, 39}).zeros(4);
  expected.floats({1.5f, -2, 4}).zeros(4);
  expected.text("abcdefghi").zeros(7);
  EXPECT_EQ(sender.sent(), expected.bytes());
  EXPECT_EQ(sender.message->send_counts, (std::vector<uint64_t>{expected.bytes().size()}));
  // The step has not changed the capacity for received data.
  EXPECT_EQ(sender.message->receive_counts, (std::vector<uint64_t>{4096, 4096}));
  // The core may have to give back the sent payload.
  EXPECT_EQ(sender.offset(coded.own[0].section(0).data, sender.message->send), 64);
}

TEST(Wire, AHeaderThatEndsBetweenTwoMultiplesOf8IsFollowedByItsSections) {
  Gathered sender(0, 1);
  ItemRun& item = sender.add("w", 3, {gathered({up_to(3)})});
  sender.open();
  sender.place({32});
  sender.encode<float>(item, PENSTOCK_PAYLOAD_DENSE, 0, {1, 2, 3});
  ASSERT_OK(sender.close());
  ASSERT_EQ(sender.message->message.count, 32u);
  const std::string sent = sender.sent();
  EXPECT_EQ(sent.substr(0, 12), Part().words({0, 2, 3}).bytes());
  EXPECT_EQ(sent.substr(16), Part().floats({1, 2, 3}).zeros(4).bytes());
}

TEST(Wire, WithExactCountsEveryPartKeepsItsPlaceAndSize) {
  Gathered sender(1, 2);
  ItemRun& first = sender.add("first", 1, {gathered({exactly(1)})});
  ItemRun& second = sender.add("second", 2, {gathered({exactly(2)})});
  sender.open(PENSTOCK_ALL_TO_ALL);
  sender.message->message.flags |= PENSTOCK_MESSAGE_EXACT_COUNTS;
  sender.message->by_owner = {{0}, {1}};
  sender.place({24, 24});
  sender.encode<float>(first, PENSTOCK_PAYLOAD_DENSE, 0, {});
  first.own[0].absent();
  sender.encode<float>(second, PENSTOCK_PAYLOAD_DENSE, 0, {8, 9});
  ASSERT_OK(sender.close());
  ASSERT_EQ(sender.message->message.count, 48u);
  EXPECT_EQ(sender.message->send_counts, (std::vector<uint64_t>{24, 24}));
  EXPECT_EQ(sender.sent().substr(0, 12), Part().words({0, 1, 0}).bytes());
  EXPECT_EQ(sender.sent().substr(24, 12), Part().words({0, 2, 2}).bytes());
  EXPECT_EQ(sender.sent().substr(40), Part().floats({8, 9}).bytes());
}

TEST(Wire, PartsOfAnAllToAllFollowEachOtherWithoutGaps) {
  Gathered sender(0, 3);
  ItemRun& first = sender.add("first", 8, {gathered({up_to(8)})});
  ItemRun& second = sender.add("second", 8, {gathered({up_to(8)})});
  sender.open(PENSTOCK_ALL_TO_ALL);
  sender.message->by_owner = {{0}, {}, {1}};
  sender.place({48, 8, 48});
  sender.encode<float>(first, PENSTOCK_PAYLOAD_DENSE, 0, {1, 2});
  sender.encode<float>(second, PENSTOCK_PAYLOAD_DENSE, 0, {3});
  ASSERT_OK(sender.close());
  EXPECT_EQ(sender.message->send_counts, (std::vector<uint64_t>{24, 8, 24}));
  ASSERT_EQ(sender.message->message.count, 56u);
  EXPECT_EQ(sender.sent().substr(16, 8), Part().floats({1, 2}).bytes());
  EXPECT_EQ(sender.sent().substr(24, 4), Part().words({0}).bytes());  // a rank that owns nothing
  EXPECT_EQ(sender.sent().substr(32, 16), Part().words({0, 2, 1}).zeros(4).bytes());
  EXPECT_EQ(sender.sent().substr(48), Part().floats({3}).zeros(4).bytes());
}

TEST(Wire, ARankThatIsNotFiniteSaysSoInEveryPart) {
  Gathered sender(0, 2);
  sender.add("w", 2, {gathered({up_to(2)})});
  sender.open(PENSTOCK_ALL_TO_ALL);
  sender.message->by_owner = {{0}, {}};
  sender.place({24, 8});
  sender.coding().nonfinite = true;
  sender.coding().items[0].own[0].absent();
  ASSERT_OK(sender.close());
  ASSERT_EQ(sender.message->message.count, 24u);
  EXPECT_EQ(sender.sent().substr(0, 12), Part().words({1, 1, 0}).bytes());
  EXPECT_EQ(sender.sent().substr(16, 4), Part().words({1}).bytes());
}

// ---- Reading ----

TEST(Wire, ReceivedSectionsLieInTheMessageWhereTheyHaveArrived) {
  Gathered receiver(1, 3);
  ItemRun& sparse = receiver.add("sparse", 40, {pairs(30)});
  ItemRun& coded = receiver.add("coded", 9, {gathered({up_to(9, PENSTOCK_UINT8)})});
  receiver.open();
  Part full, absent, empty;
  full.words({0, 3, 3, 3, 4, 2}).words({3, 17, 39}).zeros(4).floats({1.5f, -2, 4}).zeros(4);
  full.text("xy").zeros(6);
  absent.words({0, 1, 0, 0, 1, 0});
  empty.words({0, 3, 0, 0, 4, 9}).text("123456789").zeros(7);
  ASSERT_OK(receiver.read({full.bytes(), absent.bytes(), empty.bytes()}));
  EXPECT_FALSE(receiver.bucket.is_void);
  const int64_t begin = 4096 - 64;  // the first part's
  EXPECT_EQ(receiver.offset(receiver.came(sparse, 0, 0).data, receiver.message->receive),
            begin + 24);
  EXPECT_EQ(receiver.offset(receiver.came(sparse, 0, 1).data, receiver.message->receive),
            begin + 40);
  EXPECT_EQ(receiver.offset(receiver.came(coded, 0, 0).data, receiver.message->receive),
            begin + 56);
  EXPECT_EQ(receiver.came(sparse, 0, 0).count, 3u);
  EXPECT_EQ(receiver.came(coded, 0, 0).count, 2u);
  EXPECT_EQ(std::memcmp(receiver.came(coded, 2, 0).data, "123456789", 9), 0);
  const uint32_t kinds[][2] = {{3, 4}, {1, 1}, {3, 4}};
  for (uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(sparse.arrival(0, rank).c()->kind, kinds[rank][0]) << rank;
    EXPECT_EQ(coded.arrival(0, rank).c()->kind, kinds[rank][1]) << rank;
  }
  EXPECT_EQ(receiver.came(sparse, 1, 0).count, 0u);
}

TEST(Wire, OneRankThatIsNotFiniteMakesTheBucketVoid) {
  Gathered receiver(0, 2);
  receiver.add("w", 2, {gathered({up_to(2)})});
  receiver.open();
  const std::string finite = Part().words({0, 1, 0}).zeros(4).bytes();
  // The other bits of the lower half have no meaning here.
  const std::string later = Part().words({0xfffe, 1, 0}).zeros(4).bytes();
  ASSERT_OK(receiver.read({finite, later}));
  EXPECT_FALSE(receiver.bucket.is_void);
  ASSERT_OK(receiver.read({finite, Part().words({1, 1, 0}).zeros(4).bytes()}));
  EXPECT_TRUE(receiver.bucket.is_void);
  EXPECT_EQ(receiver.coding().failed_owners, std::vector<bool>(2));  // there are no owners
}

TEST(Wire, OfSumsOnlyWhatTheirOwnersSendIsReadAndItIsNotedWhoHasNone) {
  Gathered receiver(0, 3);
  ItemRun& first = receiver.add("first", 2, {gathered({up_to(2)})});
  ItemRun& second = receiver.add("second", 2, {gathered({up_to(2)})});
  receiver.open();
  receiver.coding().of_sums = true;
  for (ItemRun* item : {&first, &second}) {
    item->received[0].clear();
    item->received[0].emplace_back().shape(item->rounds[0], 0);
  }
  receiver.message->by_owner = {{1}, {}, {0}};
  ASSERT_OK(receiver.read({Part().words({0, 2, 1}).zeros(4).floats({7}).zeros(4).bytes(),
                           Part().words({0}).zeros(4).bytes(),
                           Part().words({1, 1, 0}).zeros(4).bytes()}));
  EXPECT_TRUE(receiver.bucket.is_void);
  EXPECT_EQ(receiver.coding().failed_owners, (std::vector<bool>{false, false, true}));
  EXPECT_EQ(*static_cast<const float*>(receiver.came(second, 0, 0).data), 7);
  EXPECT_EQ(first.arrival(0, 2).c()->kind, uint32_t{PENSTOCK_PAYLOAD_ABSENT});
}

TEST(Wire, AnOwnerReadsOfEveryRankWhatItOwns) {
  Gathered owner(1, 2);
  owner.add("other", 2, {gathered({up_to(2)})});
  ItemRun& mine = owner.add("mine", 2, {gathered({up_to(2)})});
  owner.open(PENSTOCK_ALL_TO_ALL);
  owner.message->by_owner = {{0}, {1}};
  ASSERT_OK(owner.read({Part().words({0, 2, 1}).zeros(4).floats({5}).zeros(4).bytes(),
                        Part().words({0, 2, 2}).zeros(4).floats({6, 7}).bytes()}));
  EXPECT_EQ(owner.came(mine, 0, 0).count, 1u);
  EXPECT_EQ(static_cast<const float*>(owner.came(mine, 1, 0).data)[1], 7);
}

}  // namespace
}  // namespace penstock::wire_test

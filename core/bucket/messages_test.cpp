// Layouts of summed messages: the position of each section, the data that is added in place, and
// the position of the bucket's flag. docs/payloads.md describes this layout in words.

#include "core/bucket/testing.hpp"

namespace penstock::messages_test {
namespace {

using testing::exactly;
using testing::gathered;
using testing::pairs;
using testing::PaperBucket;
using testing::summed;

int64_t offset(const void* data, const WorkMemory& memory) {
  return static_cast<const std::byte*>(data) - memory.data();
}

std::vector<std::string_view> kinds_of(const std::vector<std::unique_ptr<MessageRun>>& messages) {
  std::vector<std::string_view> kinds;
  for (const auto& message : messages) kinds.push_back(message->name());
  return kinds;
}

// ---- One sum ----

TEST(SummedMessages, SectionsLieBehindEachOtherAndTheFlagBehindThemAll) {
  PaperBucket paper(1, 3);
  ItemRun& first = paper.add("first", 5, {summed({exactly(5)})});
  ItemRun& second = paper.add("second", 12, {summed({exactly(3), exactly(4)})});
  paper.context.limit_us = 77;
  ASSERT_OK(paper.lay_out());
  ASSERT_EQ(kinds_of(paper.messages()), std::vector<std::string_view>{"sum"});
  MessageRun& message = paper.message();
  EXPECT_EQ(message.message.pattern, uint32_t{PENSTOCK_ALL_REDUCE});
  EXPECT_EQ(message.message.reduction, uint32_t{PENSTOCK_REDUCE_SUM});
  EXPECT_EQ(message.message.dtype, uint32_t{PENSTOCK_FLOAT32});
  EXPECT_EQ(message.message.count, 13u);
  EXPECT_EQ(message.message.step, &paper.coding().step);
  EXPECT_EQ(message.limit_us, 77u);
  EXPECT_EQ(message.link, &paper.coding().links->transport);
  EXPECT_EQ(message.items, (std::vector<size_t>{0, 1}));
  EXPECT_EQ(message.send.bytes(), 52u);
  EXPECT_TRUE(message.has_flag);
  EXPECT_EQ(message.flag_index, 12u);
  EXPECT_EQ(offset(first.own[0].section(0).data, message.send), 0);
  EXPECT_EQ(offset(second.own[0].section(0).data, message.send), 20);
  EXPECT_EQ(offset(second.own[0].section(1).data, message.send), 32);
}

TEST(SummedMessages, ArriveWhereTheyWereSentFromWithTheirPlannedCounts) {
  PaperBucket paper(0, 2);
  ItemRun& item = paper.add("w", 7, {summed({exactly(3), exactly(4)})});
  ASSERT_OK(paper.lay_out());
  const MessageRun& message = paper.message();
  EXPECT_EQ(message.message.send, message.send.data());
  EXPECT_EQ(message.message.receive, message.send.data());
  EXPECT_EQ(message.receive.bytes(), 0u);
  ASSERT_EQ(item.received[0].size(), 1u);
  for (size_t s = 0; s < 2; ++s) {
    EXPECT_EQ(item.received[0][0].section(s).data, item.own[0].section(s).data) << s;
    EXPECT_EQ(item.received[0][0].section(s).count, 3 + s);
  }
}

// A sum in place would overwrite a payload that the core may give back or that record reads.
TEST(SummedMessages, WhatIsKeptIsReceivedElsewhere) {
  for (const bool keeps : {true, false}) {
    PaperBucket paper(0, 2);
    paper.add("plain", 2, {summed({exactly(2)})});
    ItemRun& item = paper.add("kept", 3, {summed({exactly(3)})});
    (keeps ? item.keeps : item.records_decoded) = true;
    ASSERT_OK(paper.lay_out());
    const MessageRun& message = paper.message();
    EXPECT_EQ(message.send.bytes(), 24u);
    EXPECT_EQ(message.receive.bytes(), 24u);
    EXPECT_EQ(message.message.receive, message.receive.data());
    EXPECT_EQ(offset(item.own[0].section(0).data, message.send), 8);
    EXPECT_EQ(offset(item.received[0][0].section(0).data, message.receive), 8);
  }
}

TEST(SummedMessages, OnlyTheLastRoundOfAnItemTakesOutWhatIsKept) {
  PaperBucket paper(0, 2);
  paper.add("one", 3, {summed({exactly(3)})});
  paper.add("two", 3, {summed({exactly(1)}), summed({exactly(2)})}).keeps = true;
  ASSERT_OK(paper.lay_out());
  EXPECT_EQ(paper.message(0, 0, 0).receive.bytes(), 0u);
  EXPECT_EQ(paper.message(0, 0, 1).receive.bytes(), 12u);
  EXPECT_EQ(paper.message(0, 0, 1).items, std::vector<size_t>{1});
}

TEST(SummedMessages, ElementsHaveTheSizeOfTheirType) {
  for (const auto& [dtype, bytes] :
       {std::pair(PENSTOCK_FLOAT16, 2u), std::pair(PENSTOCK_BFLOAT16, 2u),
        std::pair(PENSTOCK_FLOAT32, 4u), std::pair(PENSTOCK_FLOAT64, 8u)}) {
    PaperBucket paper(0, 2);
    const auto type = static_cast<uint32_t>(dtype);
    paper.add("first", 3, {summed({exactly(3, type)})});
    ItemRun& second = paper.add("second", 4, {summed({exactly(4, type)})});
    ASSERT_OK(paper.lay_out());
    EXPECT_EQ(paper.message().send.bytes(), 8 * bytes);  // the flag has the type of the sum
    EXPECT_EQ(offset(second.own[0].section(0).data, paper.message().send), 3 * bytes);
  }
}

TEST(SummedMessages, OfEmptyGradientsAreTheFlagAlone) {
  PaperBucket paper(0, 2);
  ItemRun& empty = paper.add("empty", 0, {summed({exactly(0)})});
  paper.add("nothing", 0, {summed({})});
  ASSERT_OK(paper.lay_out());
  EXPECT_EQ(paper.message().message.count, 1u);
  EXPECT_EQ(paper.message().send.bytes(), 4u);
  EXPECT_EQ(paper.message().items, (std::vector<size_t>{0, 1}));
  EXPECT_EQ(empty.received[0][0].section(0).count, 0u);
}

TEST(SummedMessages, AreOnePerTypeAndReductionInTheSameOrderOnEveryRank) {
  PaperBucket paper(0, 2);
  paper.add("half", 1, {summed({exactly(1, PENSTOCK_FLOAT16)})});
  paper.add("most", 2, {summed({exactly(2)}, PENSTOCK_REDUCE_MAX)});
  paper.add("first", 3, {summed({exactly(3)})});
  paper.add("half too", 4, {summed({exactly(4, PENSTOCK_FLOAT16)})});
  ASSERT_OK(paper.lay_out());
  ASSERT_EQ(paper.messages().size(), 3u);
  const std::vector<std::vector<size_t>> items{{2}, {1}, {0, 3}};
  const uint32_t dtypes[] = {PENSTOCK_FLOAT32, PENSTOCK_FLOAT32, PENSTOCK_FLOAT16};
  const uint32_t reductions[] = {PENSTOCK_REDUCE_SUM, PENSTOCK_REDUCE_MAX, PENSTOCK_REDUCE_SUM};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(paper.message(i).items, items[i]) << i;
    EXPECT_EQ(paper.message(i).message.dtype, dtypes[i]) << i;
    EXPECT_EQ(paper.message(i).message.reduction, reductions[i]) << i;
  }
  // A maximum has no place for a count of ranks.
  EXPECT_FALSE(paper.message(1).has_flag);
  EXPECT_EQ(paper.message(1).message.count, 2u);
}

TEST(SummedMessages, OfTwoTypesInOneRoundOfAnItemAreRefused) {
  PaperBucket paper(0, 2);
  paper.add("w", 5, {summed({exactly(2), exactly(3, PENSTOCK_FLOAT16)})});
  const Status status = paper.lay_out();
  EXPECT_EQ(status.code(), Code::internal);
  EXPECT_EQ(status.message(), "compressor 'topk' sums sections of different dtypes in one round");
}

// ---- The flag of a bucket ----

TEST(Flags, OfIntegersTravelInAMessageOfTheirOwn) {
  PaperBucket paper(0, 2);
  paper.add("w", 5, {summed({exactly(5, PENSTOCK_INT32)})});
  ASSERT_OK(paper.lay_out());
  ASSERT_EQ(kinds_of(paper.messages()), (std::vector<std::string_view>{"sum", "flag"}));
  EXPECT_FALSE(paper.message().has_flag);
  EXPECT_EQ(paper.message().message.count, 5u);
  const MessageRun& flag = paper.message(1);
  EXPECT_EQ(flag.message.pattern, uint32_t{PENSTOCK_ALL_REDUCE});
  EXPECT_EQ(flag.message.dtype, uint32_t{PENSTOCK_FLOAT32});
  EXPECT_EQ(flag.message.count, 1u);
  EXPECT_EQ(flag.send.bytes(), 4u);
  EXPECT_EQ(flag.message.send, flag.message.receive);
  EXPECT_TRUE(flag.has_flag);
  EXPECT_EQ(flag.flag_index, 0u);
}

TEST(Flags, TravelOnceInARound) {
  PaperBucket floats(0, 2);
  floats.add("integers", 5, {summed({exactly(5, PENSTOCK_INT32)})});
  floats.add("floats", 5, {summed({exactly(5)})});
  ASSERT_OK(floats.lay_out());
  EXPECT_EQ(kinds_of(floats.messages()), (std::vector<std::string_view>{"sum", "sum"}));

  PaperBucket gathers(0, 2);
  gathers.add("integers", 5, {summed({exactly(5, PENSTOCK_INT32)})});
  gathers.add("pairs", 5, {pairs(2)});
  ASSERT_OK(gathers.lay_out());
  EXPECT_EQ(kinds_of(gathers.messages()), (std::vector<std::string_view>{"sum", "gather"}));

  PaperBucket prologue(0, 2);
  prologue.add("integers", 5, {summed({exactly(5, PENSTOCK_INT32)})}).n_scalars = 1;
  ASSERT_OK(prologue.lay_out());
  EXPECT_EQ(kinds_of(prologue.messages()), std::vector<std::string_view>{"sum"});
}

TEST(Flags, AreToldByTheFirstRoundAndNotAgain) {
  PaperBucket paper(0, 2);
  const RoundNeed integers = summed({exactly(5, PENSTOCK_INT32)});
  paper.add("w", 5, {integers, integers});
  ASSERT_OK(paper.lay_out());
  EXPECT_EQ(kinds_of(paper.messages(0, 0)), (std::vector<std::string_view>{"sum", "flag"}));
  EXPECT_EQ(kinds_of(paper.messages(0, 1)), std::vector<std::string_view>{"sum"});
}

TEST(Flags, AreNotSentWhereNothingElseIs) {
  PaperBucket nothing(0, 2);
  ASSERT_OK(nothing.lay_out());
  ASSERT_EQ(nothing.bucket.legs.size(), 1u);
  EXPECT_TRUE(nothing.bucket.legs[0].messages.empty());
  EXPECT_FALSE(nothing.bucket.legs[0].sends());

  PaperBucket compensated(0, 2);
  compensated.add("w", 5, {});
  ASSERT_OK(compensated.lay_out());
  EXPECT_FALSE(compensated.bucket.legs[0].sends());
}

// ---- Gradients that are summed uncompressed ----

TEST(PlainSums, OfOneGradientTakeNoMemoryWhateverItsSize) {
  constexpr uint64_t kElements = (uint64_t{1} << 33) + 5;  // more than 32 bits
  PaperBucket paper(0, 2);
  ItemRun& item = paper.add("w", kElements, {summed({exactly(kElements)})});
  item.passes_through = item.of->is_never_void = true;
  ASSERT_OK(paper.lay_out());
  ASSERT_EQ(kinds_of(paper.messages()), std::vector<std::string_view>{"sum"});
  EXPECT_EQ(paper.message().message.count, kElements);
  EXPECT_FALSE(paper.message().has_flag);
  EXPECT_EQ(paper.message().send.bytes(), 0u);
}

TEST(PlainSums, OfSeveralHaveRoomForACopyAndAFlagBesideThem) {
  PaperBucket paper(0, 2);
  for (const uint64_t numel : {3, 0, 4})
    paper.add("w", numel, {summed({exactly(numel, PENSTOCK_FLOAT16)})}).passes_through = true;
  ASSERT_OK(paper.lay_out());
  ASSERT_EQ(kinds_of(paper.messages()), (std::vector<std::string_view>{"sum", "flag"}));
  EXPECT_EQ(paper.message().message.count, 7u);
  EXPECT_EQ(paper.message().send.bytes(), 14u);
}

}  // namespace
}  // namespace penstock::messages_test

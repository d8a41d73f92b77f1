// The layout of a bucket: its legs, the payloads of its items, and the calls of plugins in a step.

#include "core/bucket/testing.hpp"

namespace penstock::layout_test {
namespace {

using testing::compressor_named;
using testing::exactly;
using testing::gathered;
using testing::memory_named;
using testing::pairs;
using testing::PaperBucket;
using testing::ranks_on_one_host;
using testing::summed;
using testing::up_to;

using Positions = std::vector<size_t>;

// ---- Names ----

TEST(Layout, ABucketIsNamedByItsGradientsAndPlugins) {
  PaperBucket none(0, 2), one(0, 2), many(0, 2);
  const auto other = compressor_named("none");
  one.add("fc.weight", 3, {});
  for (const char* name : {"fc.weight", "fc.bias", "head"}) many.add(name, 3, {});
  many.coding().items[0].compressor = other.get();
  for (PaperBucket* paper : {&none, &one, &many}) ASSERT_OK(paper->lay_out());
  EXPECT_EQ(none.bucket.label, "bucket 3");
  EXPECT_EQ(none.bucket.lane, "set bucket 3");
  EXPECT_EQ(one.bucket.lane, "set bucket 3: fc.weight");
  EXPECT_EQ(one.bucket.scheme, "topk + residual");
  EXPECT_EQ(many.bucket.lane, "set bucket 3: fc.weight to head, 3 gradients");
  EXPECT_EQ(many.bucket.scheme, "none + residual, topk + residual");
}

// ---- Legs ----

// The flags of each leg: waits for the forward, reports the result, ends the coding.
std::string legs_text(const BucketRun& bucket) {
  std::string text;
  for (const Leg& leg : bucket.legs) {
    text += leg.coding == bucket.codings.front().get() ? "0" : "1";
    text += leg.waits_for_forward ? "w" : "";
    text += leg.tells ? "t" : "";
    text += leg.ends_coding ? "e" : "";
    text += fmt::format("{} ", leg.messages.size());
  }
  return text;
}

TEST(Layout, ARouteHasItsLegsWithTheRoundsOfTheirCoding) {
  const auto text = [](uint32_t route, bool only_compensates, bool ends_at_owners) {
    PaperBucket paper(route, 0, {0, 0, 1, 1});
    paper.bucket.only_compensates = only_compensates;
    paper.bucket.ends_at_owners = ends_at_owners;
    ItemRun& item = paper.add("w", 4, {summed({exactly(1)}), summed({exactly(1)})});
    if (route == PENSTOCK_ROUTE_SHARD)
      paper.add_item(1, *item.of, item.range, {summed({exactly(1)})});
    EXPECT_TRUE(paper.lay_out().ok());
    for (const Leg& leg : paper.bucket.legs) {
      EXPECT_EQ(leg.announcements.size(), leg.messages.size());
      EXPECT_EQ(leg.announcements.front().header, nullptr);  // nothing goes from device to device
    }
    return legs_text(paper.bucket);
  };
  EXPECT_EQ(text(PENSTOCK_ROUTE_FLAT, false, false), "0e2 ");
  EXPECT_EQ(text(PENSTOCK_ROUTE_SPLIT, false, false), "02 0we2 ");
  EXPECT_EQ(text(PENSTOCK_ROUTE_HIERARCHICAL, false, false), "01 0e2 0t1 ");
  EXPECT_EQ(text(PENSTOCK_ROUTE_SHARD, false, false), "02 1e1 ");
  EXPECT_EQ(text(PENSTOCK_ROUTE_FLAT, true, false), "0e2 ");
  EXPECT_EQ(text(PENSTOCK_ROUTE_HIERARCHICAL, true, false), "01 0e2 ");
  EXPECT_EQ(text(PENSTOCK_ROUTE_SHARD, false, true), "0e2 ");
}

TEST(Layout, APlanMayLetAnyLegAndThoseBehindItWaitForForward) {
  PaperBucket paper(PENSTOCK_ROUTE_HIERARCHICAL, 0, {0, 0, 1, 1});
  paper.bucket.plan.waits_from = 1;
  paper.add("w", 4, {summed({exactly(4)})});
  ASSERT_OK(paper.lay_out());
  EXPECT_EQ(legs_text(paper.bucket), "01 0we1 0wt1 ");
}

// ---- Payloads ----

TEST(Layout, SumsArriveJoinedAndGathersFromEachRank) {
  PaperBucket paper(2, 3);
  ItemRun& item = paper.add("w", 9, {summed({exactly(2)}), pairs(4)});
  ASSERT_OK(paper.lay_out());
  ASSERT_EQ(item.own.size(), 2u);
  EXPECT_EQ(item.own[0].c()->rank, 2);
  EXPECT_EQ(item.own[0].size(), 1u);
  EXPECT_EQ(item.own[1].size(), 2u);
  EXPECT_EQ(item.own[1].section(1).capacity, 4u);
  ASSERT_EQ(item.received[0].size(), 1u);
  EXPECT_EQ(item.received[0][0].c()->rank, -1);
  ASSERT_EQ(item.received[1].size(), 3u);
  for (int32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(item.received[1][rank].c()->rank, rank);
    EXPECT_EQ(item.received[1][rank].c()->kind, uint32_t{PENSTOCK_PAYLOAD_ABSENT});
  }
}

TEST(Layout, WhoDoesNotEncodeHasNoPayloadAndWhoDoesNotDecodeReceivesNone) {
  PaperBucket paper(PENSTOCK_ROUTE_SHARD, 1, ranks_on_one_host(3));
  ItemRun& part = paper.add("w", 9, {pairs(4)});
  ItemRun& sum = paper.add_item(1, *part.of, part.range, {pairs(4)});
  part.owner = sum.owner = 2;
  part.decodes = sum.encodes = false;
  ASSERT_OK(paper.lay_out());
  EXPECT_EQ(part.own[0].size(), 2u);
  EXPECT_TRUE(part.received[0].empty());
  EXPECT_EQ(sum.own[0].size(), 0u);
  ASSERT_EQ(sum.received[0].size(), 1u);
  EXPECT_EQ(sum.received[0][0].c()->rank, 2);  // only from its owner
}

TEST(Layout, WhoRecordsWhatWasSentHasRoomToReadIt) {
  PaperBucket paper(1, 2);
  ItemRun& coded = paper.add("coded", 9, {gathered({up_to(9, PENSTOCK_UINT8)})});
  ItemRun& sparse = paper.add("sparse", 9, {pairs(3)});
  ItemRun& unrecorded = paper.add("unrecorded", 9, {gathered({up_to(9, PENSTOCK_UINT8)})});
  coded.records_decoded = sparse.records_decoded = true;
  ASSERT_OK(paper.lay_out());
  ASSERT_EQ(coded.returned.size(), 1u);
  EXPECT_EQ(coded.returned.section(0).capacity, 9u);
  EXPECT_EQ(coded.returned.section(0).dtype, uint32_t{PENSTOCK_FLOAT32});
  EXPECT_EQ(coded.returned.section(0).data, coded.returned_data.data());
  EXPECT_EQ(coded.returned_data.bytes(), 36u);
  EXPECT_EQ(coded.returned.c()->rank, 1);
  EXPECT_EQ(sparse.returned.size(), 0u);  // pairs need no decoding
  EXPECT_EQ(unrecorded.returned.size(), 0u);
}

// ---- Calls ----

TEST(Layout, ItemsOfOneCompressorThatMeetAlikeAreOneCall) {
  PaperBucket paper(0, 3);
  const auto other = compressor_named("other");
  const RoundNeed sum = summed({exactly(2)}), gather = gathered({up_to(2)});
  ItemRun& first = paper.add("first", 2, {sum});
  ItemRun& second = paper.add("second", 2, {gather, sum});
  paper.add("third", 2, {sum}).compressor = other.get();
  ItemRun& fourth = paper.add("fourth", 2, {gather});
  paper.add("plain", 2, {sum}).passes_through = true;
  ASSERT_OK(paper.lay_out());
  const Coding& coding = paper.coding();
  EXPECT_EQ(coding.n_rounds, 2u);
  struct Expected {
    uint32_t round;
    uint64_t n_ranks;
    const CompressorInstance* compressor;
    Positions positions;
  };
  const std::vector<Expected> expected{{0, 1, paper.compressor.get(), {0}},
                                       {0, 3, paper.compressor.get(), {1, 3}},
                                       {0, 1, other.get(), {2}},
                                       {1, 1, paper.compressor.get(), {1}}};
  for (const auto& calls : {std::ref(coding.encode_calls), std::ref(coding.decode_calls)}) {
    ASSERT_EQ(calls.get().size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(calls.get()[i].round, expected[i].round) << i;
      EXPECT_EQ(calls.get()[i].n_ranks, expected[i].n_ranks) << i;
      EXPECT_EQ(calls.get()[i].compressor, expected[i].compressor) << i;
      EXPECT_EQ(calls.get()[i].positions, expected[i].positions) << i;
    }
  }
  const CompressorCall& gathers = coding.decode_calls[1];
  ASSERT_EQ(gathers.received.size(), 6u);  // item after item, rank after rank
  EXPECT_EQ(gathers.received[2], second.received[0][2].c());
  EXPECT_EQ(gathers.received[3], fourth.received[0][0].c());
  EXPECT_EQ(coding.encode_calls[0].own, std::vector<penstock_payload*>{first.own[0].c()});
  EXPECT_EQ(coding.encode_calls[3].own, std::vector<penstock_payload*>{second.own[1].c()});
}

TEST(Layout, OnlyWhoEncodesIsCalledToEncodeAndOnlyWhoDecodesToDecode) {
  PaperBucket paper(0, 2);
  paper.add("mine", 2, {pairs(2)}).decodes = false;
  paper.add("theirs", 2, {pairs(2)}).encodes = false;
  ASSERT_OK(paper.lay_out());
  ASSERT_EQ(paper.coding().encode_calls.size(), 1u);
  EXPECT_EQ(paper.coding().encode_calls[0].positions, Positions{0});
  ASSERT_EQ(paper.coding().decode_calls.size(), 1u);
  EXPECT_EQ(paper.coding().decode_calls[0].positions, Positions{1});
  ASSERT_EQ(paper.coding().memory_calls.size(), 1u);
  EXPECT_EQ(paper.coding().memory_calls[0].positions, Positions{0});
}

TEST(Layout, ItemsAreFoldedInTheirFirstRoundOnly) {
  PaperBucket paper(0, 2);
  const RoundNeed sum = summed({exactly(2)});
  ItemRun& folded = paper.add("folded", 2, {sum, sum});
  ItemRun& other = paper.add("other", 2, {sum, sum});
  folded.folded = true;
  ASSERT_OK(paper.lay_out());
  const auto& calls = paper.coding().encode_calls;
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].folds, (std::vector<const penstock_fold*>{&folded.fold, nullptr}));
  EXPECT_EQ(calls[1].folds, (std::vector<const penstock_fold*>{nullptr, nullptr}));
  const MemoryCall& memory = paper.coding().memory_calls.front();
  EXPECT_EQ(memory.items,
            (std::vector<const penstock_item*>{&folded.for_memory, &other.for_memory}));
  EXPECT_EQ(memory.unfolded, std::vector<const penstock_item*>{&other.for_memory});
}

// Folds, and inspects what it folds.
std::unique_ptr<CompressorInstance> inspecting_compressor() {
  static const penstock_fold_encoder encoder{sizeof(penstock_fold_encoder),
                                             [](auto...) -> penstock_status* { return nullptr; }};
  static penstock_compressor table = *compressor_named("topk")->table();
  table.extension = [](void*, penstock_str id) -> const void* {
    return view(id) == PENSTOCK_FOLD_EXTENSION_3 ? &encoder : nullptr;
  };
  return std::move(CompressorInstance::borrow("inspects", &table, nullptr).value());
}

// The core's own tests of steps that are not finite show what then happens.
TEST(Layout, EncodeInspectsOnlyWhatItCompensatesFromOneGenerationIntoTheNext) {
  const auto inspected = [](const std::function<void(PaperBucket&, ItemRun&)>& change) {
    PaperBucket paper(0, 2);
    const auto compressor = inspecting_compressor();
    ItemRun& item = paper.add("w", 2, {pairs(2)});
    item.compressor = compressor.get();
    item.folded = item.folds_generations = true;
    change(paper, item);
    EXPECT_TRUE(paper.lay_out().ok());
    return item.of->inspected_by_encode;
  };
  EXPECT_TRUE(inspected([](PaperBucket&, ItemRun&) {}));
  EXPECT_FALSE(inspected([](PaperBucket&, ItemRun& item) { item.folds_generations = false; }));
  EXPECT_FALSE(inspected([](PaperBucket&, ItemRun& item) { item.encodes = false; }));
  EXPECT_FALSE(inspected([](PaperBucket&, ItemRun& item) { item.n_scalars = 1; }));
  EXPECT_FALSE(inspected(
      [](PaperBucket& paper, ItemRun& item) { item.compressor = paper.compressor.get(); }));
  EXPECT_FALSE(
      inspected([](PaperBucket& paper, ItemRun&) { paper.context.nonfinite_is_strict = true; }));
}

TEST(Layout, AMemoryIsToldOfThePayloadOfTheLastRound) {
  PaperBucket paper(1, 2);
  ItemRun& two = paper.add("two", 2, {summed({exactly(2)}), summed({exactly(1)})});
  ItemRun& none = paper.add("none", 2, {});
  ASSERT_OK(paper.lay_out());
  const MemoryCall& call = paper.coding().memory_calls.front();
  EXPECT_EQ(call.taken[0], two.own[1].c());
  EXPECT_EQ(call.taken[1], none.taken.c());
  EXPECT_EQ(none.taken.c()->kind, uint32_t{PENSTOCK_PAYLOAD_ABSENT});
  EXPECT_EQ(none.taken.c()->n_sections, 0u);
  EXPECT_EQ(none.taken.c()->rank, 1);
  EXPECT_EQ(call.give_back.size(), 2u);
}

// ---- Prologue ----

TEST(Prologues, HoldTheScalarsOfEachMemoryAndTheFlagBehindThem) {
  PaperBucket paper(0, 2);
  const auto other = memory_named("dgc");
  const RoundNeed sum = summed({exactly(2)});
  for (const uint32_t n_scalars : {2, 0, 2, 3}) paper.add("w", 2, {sum}).n_scalars = n_scalars;
  paper.add("other", 2, {sum}).memory = other.get();
  paper.coding().items.back().n_scalars = 2;
  ASSERT_OK(paper.lay_out());
  const Coding& coding = paper.coding();
  const std::vector<Positions> positions{{0, 2}, {1}, {3}, {4}};
  const uint64_t firsts[] = {0, 4, 4, 7};
  ASSERT_EQ(coding.memory_calls.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(coding.memory_calls[i].positions, positions[i]) << i;
    EXPECT_EQ(coding.memory_calls[i].scalars_first, firsts[i]) << i;
  }
  ASSERT_NE(coding.prologue, nullptr);
  EXPECT_EQ(coding.prologue->name(), "flag");
  EXPECT_TRUE(coding.prologue->has_flag);
  EXPECT_EQ(coding.prologue->flag_index, 9u);
  EXPECT_EQ(coding.prologue->message.count, 10u);
  EXPECT_EQ(coding.prologue->send.bytes(), 40u);
  EXPECT_EQ(coding.prologue->message.send, coding.prologue->message.receive);
}

// With `strict` the ranks exchange flags first if a memory keeps values of a coded item.
TEST(Prologues, AreAFlagAloneWhereNothingIsMeasured) {
  const auto has_prologue = [](const std::function<void(PaperBucket&, ItemRun&)>& change) {
    PaperBucket paper(0, 2);
    paper.context.nonfinite_is_strict = true;
    change(paper, paper.add("w", 2, {pairs(2)}));
    EXPECT_TRUE(paper.lay_out().ok());
    const MessageRun* prologue = paper.coding().prologue.get();
    if (prologue != nullptr) {
      EXPECT_EQ(prologue->message.count, 1u);
      EXPECT_EQ(prologue->flag_index, 0u);
    }
    return prologue != nullptr;
  };
  EXPECT_TRUE(has_prologue([](PaperBucket&, ItemRun&) {}));
  EXPECT_FALSE(has_prologue(
      [](PaperBucket& paper, ItemRun&) { paper.context.nonfinite_is_strict = false; }));
  EXPECT_FALSE(has_prologue([](PaperBucket&, ItemRun& item) { item.passes_through = true; }));
  EXPECT_FALSE(has_prologue([](PaperBucket&, ItemRun& item) { item.rounds.clear(); }));
  EXPECT_FALSE(has_prologue([](PaperBucket&, ItemRun& item) { item.encodes = false; }));
  // An owner that encodes for itself has no other rank to ask.
  EXPECT_FALSE(has_prologue([](PaperBucket& paper, ItemRun&) { paper.coding().of_sums = true; }));
}

// ---- The division ----

struct Dividing : PaperBucket {
  explicit Dividing(uint32_t route = PENSTOCK_ROUTE_FLAT)
      : PaperBucket(route, 0, ranks_on_one_host(2)) {
    compressor = compressor_named("scales", PENSTOCK_COMPRESSOR_SCALES_RESULT);
  }
  RoundNeed sum = summed({exactly(2)});
};

TEST(Means, AreMadeByDecodeWhereTheCompressorCan) {
  Dividing paper;
  ItemRun& two = paper.add("two", 2, {paper.sum, paper.sum});
  ItemRun& one = paper.add("one", 2, {paper.sum});
  ASSERT_OK(paper.lay_out());
  for (const CompressorCall& call : paper.coding().decode_calls) EXPECT_TRUE(call.scales_result);
  EXPECT_TRUE(two.decoded_as_mean);
  EXPECT_TRUE(one.decoded_as_mean);
}

TEST(Means, AreLeftToTheCoreWhereOneOfACallIsNoMean) {
  Dividing votes, sums, shards(PENSTOCK_ROUTE_SHARD);
  PaperBucket cannot(0, 2);
  votes.add("vote", 2, {votes.sum}).rounds[0].result = PENSTOCK_RESULT_FINAL;
  sums.context.result_is_sum = true;
  shards.add("part", 2, {shards.sum});
  for (PaperBucket* paper : {static_cast<PaperBucket*>(&votes), static_cast<PaperBucket*>(&sums),
                             static_cast<PaperBucket*>(&shards), &cannot}) {
    ItemRun& item = paper->add("w", 2, {summed({exactly(2)})});
    ASSERT_OK(paper->lay_out());
    EXPECT_FALSE(paper->coding().decode_calls.front().scales_result);
    EXPECT_FALSE(item.decoded_as_mean);
  }
}

// The last call contains a vote, so the core divides, although an earlier call could divide.
TEST(Means, OfAnItemAreMadeInItsLastRoundOrNotAtAll) {
  Dividing paper;
  ItemRun& mean = paper.add("mean", 2, {paper.sum, paper.sum});
  ItemRun& vote = paper.add("vote", 2, {gathered({up_to(2)}), paper.sum});
  vote.rounds[1].result = PENSTOCK_RESULT_FINAL;
  ASSERT_OK(paper.lay_out());
  ASSERT_EQ(paper.coding().decode_calls.size(), 3u);
  EXPECT_EQ(paper.coding().decode_calls[2].positions, (Positions{0, 1}));
  EXPECT_FALSE(mean.decoded_as_mean);
  EXPECT_FALSE(vote.decoded_as_mean);
}

}  // namespace
}  // namespace penstock::layout_test

// Pairs that a composite collective adds: its message, and the payloads around it.

#include "core/bucket/composites.hpp"
#include "core/bucket/testing.hpp"

namespace penstock::composites_test {
namespace {

using testing::exactly;
using testing::pairs;
using testing::PaperBucket;
using testing::summed;

using PlanOfComposite = penstock_status* (*)(void*, penstock_channel*,
                                             const penstock_message* const*, uint64_t,
                                             penstock_collective_need* const*);

// Rank 1 of two over a composite, which the core asks if the composite has a plan.
struct Composite : PaperBucket {
  explicit Composite(PlanOfComposite plan = nullptr) : PaperBucket(1, 2) {
    table.struct_size = sizeof table;
    table.plan = plan;
    channel.table = &table;
    channel.group = context.at(PENSTOCK_LEVEL_WORLD).group.view(1);
    context.at(PENSTOCK_LEVEL_WORLD).composite.channel = &channel;
    context.communication = &communication;
    context.composite_id = "collective/adder";
  }
  ItemRun& add_pairs(const char* name, uint64_t numel, std::vector<RoundNeed> rounds) {
    ItemRun& item = add(name, numel, std::move(rounds));
    item.on_composite = true;
    return item;
  }
  Communication communication;
  penstock_collective table{};
  Channel channel;
};

const CompositeMessage& composite(const MessageRun& message) {
  return dynamic_cast<const CompositeMessage&>(message);
}

int64_t between(const penstock_section& from, const penstock_section& to) {
  return static_cast<const std::byte*>(to.data) - static_cast<const std::byte*>(from.data);
}

TEST(CompositeMessages, HandOverThePairsOfAllItemsBehindEachOther) {
  Composite paper;
  ItemRun& first = paper.add_pairs("first", 10, {pairs(3)});
  ItemRun& second = paper.add_pairs("second", 8, {pairs(2)});
  ASSERT_OK(paper.lay_out());
  const MessageRun& message = paper.message();
  const penstock_message& c = message.message;
  EXPECT_EQ(message.name(), "composite");
  EXPECT_EQ(message.link, &paper.coding().links->composite);
  EXPECT_EQ(c.pattern, uint32_t{PENSTOCK_SPARSE_ALL_REDUCE});
  EXPECT_EQ(message.send.bytes(), 40u);
  ASSERT_EQ(c.n_items, 2u);
  EXPECT_EQ(c.items[1], &second.for_compressor);
  EXPECT_EQ(c.payloads[1], second.own[0].c());
  EXPECT_EQ(c.results[0], first.received[0][0].c());
  EXPECT_EQ(first.own[0].section(0).data, message.send.data());
  EXPECT_EQ(between(first.own[0].section(0), first.own[0].section(1)), 12);
  EXPECT_EQ(between(first.own[0].section(0), second.own[0].section(0)), 24);
  EXPECT_EQ(between(first.own[0].section(0), second.own[0].section(1)), 32);
}

TEST(CompositeMessages, ResultsRefusedAndTakenHaveRoomForWhatTheItemSends) {
  Composite paper;
  ItemRun& item = paper.add_pairs("w", 10, {pairs(3)});
  ASSERT_OK(paper.lay_out());
  ASSERT_EQ(item.received[0].size(), 1u);
  for (PayloadStorage* payload : {&item.received[0][0], &item.refused, &item.taken}) {
    EXPECT_EQ(payload->c()->kind, uint32_t{PENSTOCK_PAYLOAD_SPARSE});
    EXPECT_EQ(payload->section(0).capacity, 3u);
    EXPECT_EQ(payload->section(0).dtype, uint32_t{PENSTOCK_UINT32});
    EXPECT_EQ(payload->section(1).capacity, 3u);
    EXPECT_EQ(between(payload->section(0), payload->section(1)), 12);
  }
  EXPECT_EQ(item.received[0][0].c()->rank, -1);
  EXPECT_EQ(item.refused.c()->rank, 1);
  EXPECT_EQ(item.taken.c()->rank, 1);
  EXPECT_EQ(composite(paper.message()).refused_pointers,
            std::vector<penstock_payload*>{item.refused.c()});
  // The memory receives the entries that the composite has taken, not the encoded payload.
  EXPECT_EQ(paper.coding().memory_calls[0].taken[0], item.taken.c());
}

TEST(CompositeMessages, CarryNoFlagSoTheBucketHasOneOfItsOwn) {
  Composite alone, beside_a_sum;
  alone.add_pairs("w", 10, {pairs(3)});
  beside_a_sum.add_pairs("w", 10, {pairs(3)});
  beside_a_sum.add("bias", 2, {summed({exactly(2)})});
  ASSERT_OK(alone.lay_out());
  ASSERT_OK(beside_a_sum.lay_out());
  ASSERT_EQ(alone.messages().size(), 2u);
  EXPECT_EQ(alone.message(1).name(), "flag");
  ASSERT_EQ(beside_a_sum.messages().size(), 2u);
  EXPECT_EQ(beside_a_sum.message(0).name(), "sum");
  EXPECT_EQ(beside_a_sum.message(1).name(), "composite");
}

TEST(CompositeMessages, AreOfTheLastRoundAlone) {
  Composite paper;
  ItemRun& item = paper.add_pairs("w", 10, {pairs(2), pairs(3)});
  ASSERT_OK(paper.lay_out());
  EXPECT_EQ(paper.message(0, 0, 0).name(), "gather");
  EXPECT_EQ(paper.message(0, 0, 1).name(), "composite");
  EXPECT_EQ(item.received[0].size(), 2u);
  EXPECT_EQ(item.received[1].size(), 1u);
  const std::vector<CompressorCall>& calls = paper.coding().decode_calls;
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].received.size(), 2u);
  EXPECT_EQ(calls[0].n_ranks, 2u);
  EXPECT_EQ(calls[1].n_ranks, 1u);
}

// Asks for 6 results, 100 bytes of scratch and a state.
penstock_status* plan(void*, penstock_channel*, const penstock_message* const* messages, uint64_t n,
                      penstock_collective_need* const* needs) {
  static const penstock_state_declaration hint = {sizeof(penstock_state_declaration),
                                                  {"hint", 4},
                                                  2,
                                                  3,
                                                  PENSTOCK_FLOAT32,
                                                  PENSTOCK_STATE_SOFT,
                                                  0,
                                                  0};
  static const penstock_state_declaration* const states[] = {&hint};
  EXPECT_EQ(n, 1u);
  EXPECT_EQ(messages[0]->n_items, 2u);
  EXPECT_EQ(messages[0]->payloads[0]->sections[0]->capacity, 3u);
  needs[0]->result_capacity = 6;
  needs[0]->scratch_bytes = 100;
  needs[0]->states = states;
  needs[0]->n_states = 1;
  return nullptr;
}

TEST(CompositeMessages, HaveWhatTheCompositeAsksFor) {
  Composite paper(plan);
  ItemRun& large = paper.add_pairs("large", 10, {pairs(3)});
  ItemRun& small = paper.add_pairs("small", 4, {pairs(3)});
  ASSERT_OK(paper.lay_out());
  const MessageRun& message = paper.message();
  EXPECT_EQ(large.received[0][0].section(0).capacity, 6u);
  EXPECT_EQ(small.received[0][0].section(0).capacity, 4u);  // its item has no more
  EXPECT_EQ(large.refused.section(0).capacity, 3u);
  EXPECT_EQ(message.message.exec->scratch_bytes, 100u);
  EXPECT_EQ(message.message.exec->scratch, composite(message).scratch.data());
  ASSERT_EQ(message.message.n_states, 1u);
  EXPECT_EQ(message.message.states[0]->numel, 6u);
  EXPECT_EQ(paper.states.bytes(), 24u);
}

TEST(CompositeMessages, WhatACompositeMustNotAskForIsRefusedInItsName) {
  Composite paper([](void*, penstock_channel*, const penstock_message* const*, uint64_t,
                     penstock_collective_need* const* needs) -> penstock_status* {
    needs[0]->n_states = 1;
    return nullptr;
  });
  paper.add_pairs("w", 10, {pairs(3)});
  const Status status = paper.lay_out();
  EXPECT_EQ(status.code(), Code::internal);
  EXPECT_EQ(status.message(),
            "collective 'collective/adder': plan: states is null, expected an array of 1, as "
            "n_states says");
}

}  // namespace
}  // namespace penstock::composites_test

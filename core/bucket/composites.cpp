#include "core/bucket/composites.hpp"

#include "core/comm/channel.hpp"
#include "core/fit/needs.hpp"
#include "core/plugin/instances.hpp"

#include <algorithm>
#include <cstring>

namespace penstock {
namespace {

// A payload with its own buffers, with a capacity of `entries` index and value pairs.
void own_pairs(PayloadStorage& payload, Buffer& data, uint64_t entries, int32_t rank) {
  RoundNeed pairs;
  pairs.combine = PENSTOCK_COMBINE_GATHER;
  pairs.sections.push_back({entries, PENSTOCK_ROLE_INDICES, PENSTOCK_UINT32, false});
  pairs.sections.push_back({entries, PENSTOCK_ROLE_VALUES, PENSTOCK_FLOAT32, false});
  payload.shape(pairs, rank);
  data = Buffer(entries * 8);
  payload.section(0).data = data.data();
  payload.section(1).data = data.data() + entries * 4;
  payload.c()->kind = PENSTOCK_PAYLOAD_SPARSE;
}

// The state of a composite collective is kept with the first item of its message.
Status claim_collective_states(const BucketRun& bucket, StateStore& states,
                               CompositeMessage& message, const penstock_collective_need& need) {
  const ItemRun& first = message.coding->items[message.items.front()];
  for (uint64_t i = 0; i < need.n_states; ++i) {
    const penstock_state_declaration& declaration = *need.states[i];
    const StateKey key{first.gradient->name, first.range, message.coding->leg,
                       bucket.context.composite_id, std::string(view(declaration.name))};
    PENSTOCK_ASSIGN(StateView * state, states.claim(key, first.extent, declaration));
    message.state_views.push_back(state);
    message.states.push_back(state->c());
  }
  message.message.states = message.states.data();
  message.message.n_states = message.states.size();
  return {};
}

}  // namespace

Status lay_out_composite(BucketRun& bucket, Leg& leg, StateStore& states, uint32_t round,
                         std::vector<size_t> items) {
  Coding& coding = *leg.coding;
  Channel* channel = coding.links->composite.channel;
  auto message = make_message<CompositeMessage>(bucket, coding, coding.links->composite,
                                                PENSTOCK_SPARSE_ALL_REDUCE, PENSTOCK_FLOAT32);
  take_items(*message, std::move(items));
  uint64_t bytes = 0;
  for (size_t position : message->items)
    for (const SectionNeed& section : coding.items[position].rounds[round].sections)
      bytes += section.bytes();
  message->send = Buffer(bytes);
  std::byte* cursor = message->send.data();
  for (size_t position : message->items) {
    ItemRun& item = coding.items[position];
    for (size_t s = 0; s < item.rounds[round].sections.size(); ++s) {
      item.own[round].section(s).data = cursor;
      cursor += item.rounds[round].sections[s].bytes();
    }
    message->item_pointers.push_back(&item.for_compressor);
    message->payload_pointers.push_back(item.own[round].c());
  }
  penstock_message& c = message->message;
  c.items = message->item_pointers.data();
  c.payloads = message->payload_pointers.data();
  c.n_items = message->item_pointers.size();

  CollectiveNeed published;
  if (PENSTOCK_HAS_MEMBER(channel->table, penstock_collective, plan)) {
    const penstock_message* messages[] = {&c};
    penstock_collective_need* needs[] = {&published.c};
    PENSTOCK_TRY(bucket.context.communication->run([&] {
      return from_c(channel->table->plan(channel->instance, channel->handle, messages, 1, needs));
    }));
  }
  PENSTOCK_TRY(published.adopt(bucket.context.composite_id));
  const penstock_collective_need& need = published.c;
  PENSTOCK_TRY(claim_collective_states(bucket, states, *message, need));
  message->scratch = Buffer(need.scratch_bytes);
  message->exec = bucket.context.host.exec();
  message->exec.scratch = message->scratch.data();
  message->exec.scratch_bytes = need.scratch_bytes;
  c.exec = &message->exec;
  for (size_t position : message->items) {
    ItemRun& item = coding.items[position];
    const uint64_t own_capacity = item.rounds[round].sections[0].capacity;
    const uint64_t capacity =
        need.result_capacity != 0 ? std::min(need.result_capacity, item.range.numel) : own_capacity;
    own_pairs(item.received[round][0], item.result_data, capacity, -1);
    own_pairs(item.refused, item.refused_data, own_capacity, int32_t(coding.rank()));
    own_pairs(item.taken, item.taken_data, own_capacity, int32_t(coding.rank()));
    message->result_pointers.push_back(item.received[round][0].c());
    message->refused_pointers.push_back(item.refused.c());
  }
  c.results = message->result_pointers.data();
  leg.messages[round].push_back(std::move(message));
  return {};
}

// ---- in a step ----

Status CompositeMessage::prepare(Leg&, uint32_t) {
  for (StateView* state : state_views) PENSTOCK_TRY(state->open());
  return {};
}

void CompositeMessage::echo(uint32_t round) {
  for (const size_t position : items) {
    ItemRun& item = coding->items[position];
    PayloadStorage& own = item.own[round];
    PayloadStorage& received = item.received[round][0];
    received.c()->kind = own.c()->kind;
    for (size_t s = 0; s < own.size(); ++s) {
      penstock_section& section = received.section(s);
      section.count = std::min(own.section(s).count, section.capacity);
      std::memcpy(section.data, own.section(s).data, section.count * dtype_bytes(section.dtype));
    }
    item.refused.absent();
  }
}

Status CompositeMessage::collect(Channel& channel, penstock_ticket* ticket) {
  if (!PENSTOCK_HAS_MEMBER(channel.table, penstock_collective, returned)) return {};
  for (const size_t position : items) coding->items[position].refused.absent();
  return from_c(channel.table->returned(channel.instance, ticket, refused_pointers.data(),
                                        refused_pointers.size()));
}

}  // namespace penstock

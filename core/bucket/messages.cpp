#include "core/bucket/messages.hpp"

#include "core/bucket/announcement.hpp"
#include "core/bucket/plain.hpp"
#include "core/bucket/wire.hpp"
#include "core/fit/needs.hpp"

#include <penstock/mean.h>

#include <algorithm>
#include <map>

namespace penstock {
namespace {

// The elements all sections of `items` take in a summed message.
uint64_t summed_elements(const Coding& coding, const std::vector<size_t>& items, uint32_t round) {
  uint64_t count = 0;
  for (size_t position : items)
    for (const SectionNeed& section : coding.items[position].rounds[round].sections)
      count += section.capacity;
  return count;
}

// Whether what is sent must outlive the exchange: an in-place sum would overwrite what may have to
// be given back.
bool keeps_own(const Coding& coding, const std::vector<size_t>& items, uint32_t round) {
  return std::any_of(items.begin(), items.end(), [&](size_t position) {
    const ItemRun& item = coding.items[position];
    return (item.keeps || item.records_decoded) && round + 1 == item.rounds.size();
  });
}

void point_summed(Coding& coding, MessageRun& message, uint32_t round) {
  const uint64_t element = dtype_bytes(message.message.dtype);
  const WorkMemory& arrived = message.receive.bytes() != 0 ? message.receive : message.send;
  uint64_t at = 0;
  for (size_t position : message.items) {
    ItemRun& item = coding.items[position];
    for (size_t s = 0; s < item.rounds[round].sections.size(); ++s) {
      const uint64_t capacity = item.rounds[round].sections[s].capacity;
      const WorkPlace& place = item.place();
      place.point(item.own[round].section(s), message.send, message.send.data() + at);
      place.point(item.received[round][0].section(s), arrived, arrived.data() + at);
      item.received[round][0].section(s).count = capacity;
      at += capacity * element;
    }
  }
}

// That of them all.
Link& link_of(const Coding& coding, const std::vector<size_t>& items, uint32_t round) {
  const ItemRun& first = coding.items[items.front()];
  return first.place().link_of(coding, first, round);
}

// Buffers of a sum; what is sent must stay where it may have to be given back.
Status make_sum_buffers(Coding& coding, MessageRun& message, uint32_t round) {
  uint64_t count = summed_elements(coding, message.items, round);
  const bool adds = message.message.reduction == PENSTOCK_REDUCE_SUM ||
                    message.message.reduction == PENSTOCK_REDUCE_MEAN;
  message.has_flag = !message.is_announced() && adds && is_floating(message.message.dtype);
  message.is_mean = message.message.reduction == PENSTOCK_REDUCE_MEAN;
  message.flag_index = count;
  if (message.has_flag) ++count;
  const uint64_t bytes = count * dtype_bytes(message.message.dtype);
  PENSTOCK_ASSIGN(message.send, memory_of(message, bytes));
  if (keeps_own(coding, message.items, round)) {
    PENSTOCK_ASSIGN(message.receive, memory_of(message, bytes));
  }
  message.message.send = message.send.data();
  message.message.receive =
      message.receive.bytes() != 0 ? message.receive.data() : message.send.data();
  message.message.count = count;
  point_summed(coding, message, round);
  return {};
}

// Items that are added up in one message: of one type, in one way, over one link.
struct Summed {
  bool is_announced;
  uint32_t dtype, reduction;
  auto operator<=>(const Summed&) const = default;
};

Status lay_out_sum(BucketRun& bucket, Leg& leg, uint32_t round, const Summed& how,
                   std::vector<size_t> items) {
  Coding& coding = *leg.coding;
  auto message = make_message(bucket, coding, MessageRun::Kind::sum, link_of(coding, items, round),
                              PENSTOCK_ALL_REDUCE, how.dtype);
  message->message.reduction = how.reduction;
  take_items(*message, std::move(items));
  if (is_plain(*message))
    PENSTOCK_TRY(lay_out_plain(*message));
  else
    PENSTOCK_TRY(make_sum_buffers(coding, *message, round));
  leg.messages[round].push_back(std::move(message));
  return {};
}

// Room for what goes to each rank and comes from it.
Status make_gather_buffers(Coding& coding, MessageRun& message, uint32_t round) {
  const auto capacity = message.is_announced() ? sections_capacity : gathered_capacity;
  uint64_t bytes = 0;
  for (uint32_t part = 0; part < message.n_parts(); ++part) {
    message.send_offsets.push_back(bytes);
    message.send_counts.push_back(capacity(coding, message.sent_to(part), round));
    bytes += message.send_counts.back();
  }
  PENSTOCK_ASSIGN(message.send, memory_of(message, bytes));
  uint64_t room = 0;
  for (uint32_t rank = 0; rank < message.group_size(); ++rank) {
    message.receive_offsets.push_back(room);
    message.room_for.push_back(capacity(coding, message.coming_from(rank), round));
    room += message.room_for.back();
  }
  message.receive_counts = message.room_for;
  PENSTOCK_ASSIGN(message.receive, memory_of(message, room));
  penstock_message& c = message.message;
  c.send = message.send.data();
  c.send_counts = message.send_counts.data();
  c.receive = message.receive.data();
  c.receive_counts = message.receive_counts.data();
  c.receive_offsets = message.receive_offsets.data();
  c.count = bytes;
  return {};
}

// `by_owner`: of the items, those of each rank, on legs to owners and from them.
Status lay_out_gather(BucketRun& bucket, Leg& leg, uint32_t round, std::vector<size_t> items,
                      std::vector<std::vector<size_t>> by_owner) {
  Coding& coding = *leg.coding;
  const uint32_t pattern = leg.kind.pattern == PENSTOCK_ALL_TO_ALL ? uint32_t{PENSTOCK_ALL_TO_ALL}
                                                                   : uint32_t{PENSTOCK_ALL_GATHER};
  auto message = make_message(bucket, coding, MessageRun::Kind::gather,
                              link_of(coding, items, round), pattern, PENSTOCK_UINT8);
  take_items(*message, std::move(items));
  message->by_owner = std::move(by_owner);
  PENSTOCK_TRY(make_gather_buffers(coding, *message, round));
  const bool exact =
      std::all_of(message->items.begin(), message->items.end(), [&](size_t position) {
        const auto& sections = coding.items[position].rounds[round].sections;
        return std::all_of(sections.begin(), sections.end(),
                           [](const SectionNeed& section) { return section.exact; });
      });
  const bool is_announced = message->is_announced();
  if (exact || is_announced) message->message.flags |= PENSTOCK_MESSAGE_EXACT_COUNTS;
  if (is_announced && !exact) {
    PENSTOCK_ASSIGN(message->packed, memory_of(*message, message->send.bytes()));
  }
  leg.messages[round].push_back(std::move(message));
  return {};
}

// A payload with buffers of its own: room for `entries` index and value pairs.
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

// A composite's soft state is kept with the first item of its message.
Status claim_collective_states(const BucketRun& bucket, StateStore& states, MessageRun& message,
                               const penstock_collective_need& need) {
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

Status lay_out_sparse(BucketRun& bucket, Leg& leg, StateStore& states, uint32_t round,
                      std::vector<size_t> items) {
  Coding& coding = *leg.coding;
  Channel* channel = coding.links->composite.channel;
  auto message = make_message(bucket, coding, MessageRun::Kind::sparse, coding.links->composite,
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

void lay_out_flag(BucketRun& bucket, Leg& leg, uint32_t round) {
  auto message = make_message(bucket, *leg.coding, MessageRun::Kind::flag,
                              leg.coding->links->transport, PENSTOCK_ALL_REDUCE, PENSTOCK_FLOAT32);
  message->send = Buffer(sizeof(float));
  message->has_flag = true;
  message->message.send = message->send.data();
  message->message.receive = message->send.data();
  message->message.count = 1;
  leg.messages[round].push_back(std::move(message));
}

// One sum in two legs: reduced and scattered, then what this rank holds passed on to all.
Status lay_out_halves(BucketRun& bucket, Leg& begins, Leg& ends, uint32_t round, uint32_t dtype,
                      uint32_t reduction, std::vector<size_t> items) {
  Coding& coding = *begins.coding;
  Link& link = coding.links->transport;
  auto scatter =
      make_message(bucket, coding, MessageRun::Kind::sum, link, PENSTOCK_REDUCE_SCATTER, dtype);
  auto collect =
      make_message(bucket, coding, MessageRun::Kind::passed_on, link, PENSTOCK_ALL_GATHER, dtype);
  scatter->message.reduction = reduction;
  take_items(*scatter, std::move(items));
  PENSTOCK_TRY(make_sum_buffers(coding, *scatter, round));
  const uint64_t count = scatter->message.count;
  const uint32_t world = scatter->group_size();
  uint64_t offset = 0;
  for (uint32_t rank = 0; rank < world; ++rank) {
    const uint64_t share = count / world + (rank < count % world ? 1 : 0);
    scatter->receive_counts.push_back(share);
    collect->receive_counts.push_back(share);
    collect->receive_offsets.push_back(offset);
    offset += share;
  }
  const uint64_t own_share = scatter->receive_counts[scatter->group_rank()];
  collect->send = Buffer(own_share * dtype_bytes(dtype));  // where the reduced share arrives
  collect->message.send = collect->send.data();
  collect->message.count = own_share;
  collect->message.receive = scatter->message.receive;
  collect->message.receive_counts = collect->receive_counts.data();
  collect->message.receive_offsets = collect->receive_offsets.data();
  collect->message.flags |= PENSTOCK_MESSAGE_EXACT_COUNTS;
  scatter->message.receive = collect->send.data();
  scatter->message.receive_counts = scatter->receive_counts.data();
  take_items(*collect, scatter->items);
  collect->has_flag = scatter->has_flag;
  collect->flag_index = scatter->flag_index;
  collect->is_mean = scatter->is_mean;
  begins.messages[round].push_back(std::move(scatter));
  ends.messages[round].push_back(std::move(collect));
  return {};
}

// What a round of an item is summed in.
Result<uint32_t> summed_dtype(const ItemRun& item, uint32_t round) {
  const RoundNeed& need = item.rounds[round];
  if (need.sections.empty()) return uint32_t{PENSTOCK_FLOAT32};
  for (const SectionNeed& section : need.sections)
    if (section.dtype != need.sections.front().dtype)
      return internal("compressor '{}' sums sections of different dtypes in one round",
                      item.compressor->name());
  return need.sections.front().dtype;
}

}  // namespace

void take_items(MessageRun& message, std::vector<size_t> items) {
  message.items = std::move(items);
  for (const size_t position : message.items) {
    WorkPlace& place = message.coding->items[position].place();
    if (!place.works_at_once()) message.place = &place;
  }
}

std::unique_ptr<MessageRun> make_message(BucketRun& bucket, Coding& coding, MessageRun::Kind kind,
                                         Link& link, uint32_t pattern, uint32_t dtype) {
  auto message = std::make_unique<MessageRun>();
  message->kind = kind;
  message->bucket = &bucket;
  message->coding = &coding;
  message->link = &link;
  message->place = &bucket.context.host;
  penstock_message& c = message->message;
  c.struct_size = sizeof c;
  c.pattern = pattern;
  c.reduction = PENSTOCK_REDUCE_SUM;
  c.dtype = dtype;
  c.leg = coding.leg;
  message->limit_us = bucket.context.limit_us;
  c.step = &coding.step;
  c.exec = &bucket.context.host.exec();
  return message;
}

Status lay_out_round(BucketRun& bucket, Leg& begins, Leg& ends, StateStore& states,
                     uint32_t round) {
  Coding& coding = *begins.coding;
  std::map<Summed, std::vector<size_t>> sums;
  std::vector<size_t> gathers, sparse, announced;
  const bool to_owners = coding.to_owners || coding.alone;
  std::vector<std::vector<size_t>> by_owner(to_owners ? coding.links->group.size() : 0);
  for (size_t i = 0; i < coding.items.size(); ++i) {
    const ItemRun& item = coding.items[i];
    if (item.rounds.size() <= round || (!item.encodes && !item.decodes)) continue;
    const RoundNeed& need = item.rounds[round];
    const bool is_announced = item.place().link_of(coding, item, round).is_announced;
    if (need.combine == PENSTOCK_COMBINE_SUM) {
      // Who adds to a sum receives it.
      if (item.encodes != item.decodes)
        return internal("gradient '{}' is summed in round {} by ranks that {} it",
                        item.gradient->name, round,
                        item.encodes ? "do not decode" : "do not encode");
      PENSTOCK_ASSIGN(const uint32_t dtype, summed_dtype(item, round));
      const uint32_t reduction =
          item.arrives_as_mean ? uint32_t{PENSTOCK_REDUCE_MEAN} : need.reduction;
      sums[{is_announced, dtype, reduction}].push_back(i);
    } else if (is_announced) {
      announced.push_back(i);
    } else if (item.on_composite && round + 1 == item.rounds.size()) {
      sparse.push_back(i);
    } else {
      gathers.push_back(i);
      if (to_owners) by_owner[item.owner].push_back(i);
    }
  }
  bool flagged = coding.prologue != nullptr || round > 0 || !gathers.empty() || !announced.empty();
  for (auto& [key, items] : sums) {
    if (!begins.kind.decodes)
      PENSTOCK_TRY(
          lay_out_halves(bucket, begins, ends, round, key.dtype, key.reduction, std::move(items)));
    else
      PENSTOCK_TRY(lay_out_sum(bucket, begins, round, key, std::move(items)));
    const MessageRun& message = *ends.messages[round].back();
    flagged = flagged || key.is_announced || message.has_flag ||
              coding.items[message.items.front()].of->is_never_void;
  }
  if (!gathers.empty())
    PENSTOCK_TRY(lay_out_gather(bucket, ends, round, std::move(gathers), std::move(by_owner)));
  if (!announced.empty())
    PENSTOCK_TRY(lay_out_gather(bucket, ends, round, std::move(announced), {}));
  if (!sparse.empty()) PENSTOCK_TRY(lay_out_sparse(bucket, ends, states, round, std::move(sparse)));
  if (!flagged && !ends.messages[round].empty()) lay_out_flag(bucket, ends, round);
  lay_out_announcement(bucket, ends, round);
  return {};
}

}  // namespace penstock

// Laying out the messages of one round: which payloads travel together, and in which buffers.

#include "core/bucket/layout.hpp"
#include "core/bucket/wire.hpp"
#include "core/fit/needs.hpp"

#include <algorithm>
#include <map>

namespace penstock {
namespace {

// The elements all sections of `items` take in a summed message.
uint64_t summed_elements(const BucketRun& bucket, const std::vector<size_t>& items,
                         uint32_t round) {
  uint64_t count = 0;
  for (size_t position : items)
    for (const SectionNeed& section : bucket.items[position].rounds[round].sections)
      count += section.capacity;
  return count;
}

// Whether what is sent must outlive the exchange: an in-place sum would overwrite what may have to
// be given back.
bool keeps_own(const BucketRun& bucket, const std::vector<size_t>& items, uint32_t round) {
  return std::any_of(items.begin(), items.end(), [&](size_t position) {
    const ItemRun& item = bucket.items[position];
    return item.keeps && round + 1 == item.rounds.size();
  });
}

void point_summed(BucketRun& bucket, MessageRun& message, uint32_t round) {
  const uint64_t element = dtype_bytes(message.message.dtype);
  std::byte* send = message.send.data();
  std::byte* receive = message.receive.bytes() != 0 ? message.receive.data() : send;
  for (size_t position : message.items) {
    ItemRun& item = bucket.items[position];
    for (size_t s = 0; s < item.rounds[round].sections.size(); ++s) {
      const uint64_t capacity = item.rounds[round].sections[s].capacity;
      item.own[round].section(s).data = send;
      item.received[round][0].section(s).data = receive;
      item.received[round][0].section(s).count = capacity;
      send += capacity * element;
      receive += capacity * element;
    }
  }
}

void lay_out_sum(BucketRun& bucket, uint32_t round, uint32_t dtype, uint32_t reduction,
                 std::vector<size_t> items) {
  auto message = make_message(bucket, MessageRun::Kind::sum, bucket.context.channel,
                              PENSTOCK_ALL_REDUCE, dtype);
  message->message.reduction = reduction;
  message->items = std::move(items);
  uint64_t count = summed_elements(bucket, message->items, round);
  const bool passes = bucket.items[message->items.front()].passes_through;
  if (!passes) {
    message->has_flag = reduction == PENSTOCK_REDUCE_SUM && is_floating(dtype);
    message->flag_index = count;
    if (message->has_flag) ++count;
    message->send = Buffer(count * dtype_bytes(dtype));
    if (keeps_own(bucket, message->items, round))
      message->receive = Buffer(count * dtype_bytes(dtype));
    message->message.send = message->send.data();
    message->message.receive =
        message->receive.bytes() != 0 ? message->receive.data() : message->send.data();
    point_summed(bucket, *message, round);
  }
  message->message.count = count;
  bucket.legs.back().messages[round].push_back(std::move(message));
}

void lay_out_gather(BucketRun& bucket, uint32_t round, std::vector<size_t> items) {
  auto message = make_message(bucket, MessageRun::Kind::gather, bucket.context.channel,
                              PENSTOCK_ALL_GATHER, PENSTOCK_UINT8);
  message->items = std::move(items);
  const uint64_t capacity = gathered_capacity(bucket, message->items, round);
  const uint32_t world = bucket.context.world;
  message->send = Buffer(capacity);
  message->receive = Buffer(capacity * world);
  message->receive_counts.assign(world, capacity);
  for (uint32_t rank = 0; rank < world; ++rank) message->receive_offsets.push_back(rank * capacity);
  bool exact = true;
  for (size_t position : message->items)
    for (const SectionNeed& section : bucket.items[position].rounds[round].sections)
      exact = exact && section.exact;
  penstock_message& c = message->message;
  c.send = message->send.data();
  c.receive = message->receive.data();
  c.receive_counts = message->receive_counts.data();
  c.receive_offsets = message->receive_offsets.data();
  c.count = capacity;
  if (exact) c.flags |= PENSTOCK_MESSAGE_EXACT_COUNTS;
  bucket.legs.back().messages[round].push_back(std::move(message));
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
Status claim_collective_states(BucketRun& bucket, StateStore& states, MessageRun& message,
                               const penstock_collective_need& need) {
  const ItemRun& first = bucket.items[message.items.front()];
  for (uint64_t i = 0; i < need.n_states; ++i) {
    const penstock_state_declaration& declaration = *need.states[i];
    const StateKey key{first.gradient->name,        first.piece.first,
                       first.piece.numel,           0,
                       bucket.context.composite_id, std::string(view(declaration.name))};
    PENSTOCK_ASSIGN(StateTensor * tensor, states.claim(key, declaration));
    message.states.push_back(&tensor->view);
  }
  message.message.states = message.states.data();
  message.message.n_states = message.states.size();
  return {};
}

Status lay_out_sparse(BucketRun& bucket, StateStore& states, uint32_t round,
                      std::vector<size_t> items) {
  Channel* channel = bucket.context.composite;
  auto message = make_message(bucket, MessageRun::Kind::sparse, channel, PENSTOCK_SPARSE_ALL_REDUCE,
                              PENSTOCK_FLOAT32);
  message->items = std::move(items);
  uint64_t bytes = 0;
  for (size_t position : message->items)
    for (const SectionNeed& section : bucket.items[position].rounds[round].sections)
      bytes += section.bytes();
  message->send = Buffer(bytes);
  std::byte* cursor = message->send.data();
  for (size_t position : message->items) {
    ItemRun& item = bucket.items[position];
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
  message->exec = bucket.context.exec;
  message->exec.scratch = message->scratch.data();
  message->exec.scratch_bytes = need.scratch_bytes;
  c.exec = &message->exec;
  for (size_t position : message->items) {
    ItemRun& item = bucket.items[position];
    const uint64_t own_capacity = item.rounds[round].sections[0].capacity;
    const uint64_t capacity =
        need.result_capacity != 0 ? std::min(need.result_capacity, item.piece.numel) : own_capacity;
    own_pairs(item.received[round][0], item.result_data, capacity, -1);
    own_pairs(item.refused, item.refused_data, own_capacity, int32_t(bucket.context.rank));
    own_pairs(item.taken, item.taken_data, own_capacity, int32_t(bucket.context.rank));
    message->result_pointers.push_back(item.received[round][0].c());
    message->refused_pointers.push_back(item.refused.c());
  }
  c.results = message->result_pointers.data();
  bucket.legs.back().messages[round].push_back(std::move(message));
  return {};
}

void lay_out_flag(BucketRun& bucket, uint32_t round) {
  auto message = make_message(bucket, MessageRun::Kind::flag, bucket.context.channel,
                              PENSTOCK_ALL_REDUCE, PENSTOCK_FLOAT32);
  message->send = Buffer(sizeof(float));
  message->has_flag = true;
  message->message.send = message->send.data();
  message->message.receive = message->send.data();
  message->message.count = 1;
  bucket.legs.back().messages[round].push_back(std::move(message));
}

// One sum in two legs over one buffer: reduced and scattered, then what this rank holds passed on
// to all.
void lay_out_halves(BucketRun& bucket, uint32_t round, uint32_t dtype, std::vector<size_t> items) {
  auto scatter = make_message(bucket, MessageRun::Kind::sum, bucket.context.channel,
                              PENSTOCK_REDUCE_SCATTER, dtype);
  auto collect = make_message(bucket, MessageRun::Kind::passed_on, bucket.context.channel,
                              PENSTOCK_ALL_GATHER, dtype);
  scatter->items = std::move(items);
  const uint64_t element = dtype_bytes(dtype);
  uint64_t count = summed_elements(bucket, scatter->items, round);
  scatter->has_flag = is_floating(dtype);
  scatter->flag_index = count;
  if (scatter->has_flag) ++count;
  const uint32_t world = bucket.context.world;
  uint64_t offset = 0;
  for (uint32_t rank = 0; rank < world; ++rank) {
    const uint64_t share = count / world + (rank < count % world ? 1 : 0);
    scatter->receive_counts.push_back(share);
    collect->receive_counts.push_back(share);
    collect->receive_offsets.push_back(offset);
    offset += share;
  }
  scatter->send = Buffer(count * element);
  const uint64_t own_share = scatter->receive_counts[bucket.context.rank];
  collect->send = Buffer(own_share * element);  // where the reduced share arrives, and leaves from
  point_summed(bucket, *scatter, round);
  scatter->message.send = scatter->send.data();
  scatter->message.count = count;
  scatter->message.receive = collect->send.data();
  scatter->message.receive_counts = scatter->receive_counts.data();
  collect->message.send = collect->send.data();
  collect->message.count = own_share;
  collect->message.receive = scatter->send.data();
  collect->message.receive_counts = collect->receive_counts.data();
  collect->message.receive_offsets = collect->receive_offsets.data();
  collect->message.flags |= PENSTOCK_MESSAGE_EXACT_COUNTS;
  collect->items = scatter->items;
  collect->has_flag = scatter->has_flag;
  collect->flag_index = scatter->flag_index;
  bucket.legs.front().messages[round].push_back(std::move(scatter));
  bucket.legs.back().messages[round].push_back(std::move(collect));
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

std::unique_ptr<MessageRun> make_message(BucketRun& bucket, MessageRun::Kind kind, Channel* channel,
                                         uint32_t pattern, uint32_t dtype) {
  auto message = std::make_unique<MessageRun>();
  message->kind = kind;
  message->bucket = &bucket;
  message->channel = channel;
  penstock_message& c = message->message;
  c.struct_size = sizeof c;
  c.pattern = pattern;
  c.reduction = PENSTOCK_REDUCE_SUM;
  c.dtype = dtype;
  message->limit_us = bucket.context.limit_us;
  c.step = &bucket.context.step;
  c.exec = &bucket.context.exec;
  return message;
}

Status lay_out_round(BucketRun& bucket, StateStore& states, uint32_t round) {
  std::map<std::pair<uint32_t, uint32_t>, std::vector<size_t>> sums;  // (dtype, reduction)
  std::vector<size_t> gathers, sparse;
  for (size_t i = 0; i < bucket.items.size(); ++i) {
    const ItemRun& item = bucket.items[i];
    if (item.rounds.size() <= round) continue;
    const RoundNeed& need = item.rounds[round];
    if (need.combine == PENSTOCK_COMBINE_SUM) {
      PENSTOCK_ASSIGN(const uint32_t dtype, summed_dtype(item, round));
      sums[{dtype, need.reduction}].push_back(i);
    } else if (item.on_composite && round + 1 == item.rounds.size()) {
      sparse.push_back(i);
    } else {
      gathers.push_back(i);
    }
  }
  bool flagged = bucket.prologue != nullptr || round > 0 || !gathers.empty();
  for (auto& [key, items] : sums) {
    if (bucket.legs.front().kind.sums == PENSTOCK_REDUCE_SCATTER)
      lay_out_halves(bucket, round, key.first, std::move(items));
    else
      lay_out_sum(bucket, round, key.first, key.second, std::move(items));
    const MessageRun& message = *bucket.legs.back().messages[round].back();
    flagged = flagged || message.has_flag || bucket.items[message.items.front()].passes_through;
  }
  if (!gathers.empty()) lay_out_gather(bucket, round, std::move(gathers));
  if (!sparse.empty()) PENSTOCK_TRY(lay_out_sparse(bucket, states, round, std::move(sparse)));
  if (!flagged && !bucket.legs.back().messages[round].empty()) lay_out_flag(bucket, round);
  return {};
}

}  // namespace penstock

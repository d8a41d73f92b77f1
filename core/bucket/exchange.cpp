#include "core/bucket/exchange.hpp"

#include "core/bucket/announcement.hpp"
#include "core/bucket/dense.hpp"
#include "core/bucket/flag.hpp"
#include "core/bucket/plain.hpp"
#include "core/bucket/wire.hpp"
#include "core/comm/channel.hpp"
#include "core/tensor/elements.hpp"

#include <kernels/message.hpp>

#include <algorithm>

namespace penstock {
namespace {

using MessageKind = MessageRun::Kind;

Status read_flag(BucketRun& bucket, const MessageRun& message, const void* arrived) {
  if (!message.has_flag) return {};
  return take_summed_flag(bucket, flag_at(message.message.dtype, arrived, message.flag_index),
                          message.is_mean);
}

// `sequence`: on the message's channel, where that is ordered; `tag`: where it is not.
void submit(BucketRun& bucket, MessageRun& message, uint64_t sequence, uint64_t tag) {
  message.message.id = sdk::step_message_id(bucket.context.attempt, bucket.number, message.order);
  message.message.tag = tag;
  message.sequence = sequence;
  message.sent = true;
  // The engine announces it.
  bucket.context.communication->submit_quietly(message.link->channel, &message);
}
}  // namespace

void submit(BucketRun& bucket, MessageRun& message) {
  // Eight steps apart a tag comes again; by then every message of the older step has ended.
  const uint64_t tag = bucket.context.attempt % 8 * bucket.context.tags_per_step + message.order;
  submit(bucket, message, message.link->sequence_base + message.order, tag);
}
// By its turn among the exchanges of all sets. A million turns later its tag comes again: it is
// under way on every rank by its turn, and waits for none of their applications, so it has long
// ended.
void submit_by_turn(BucketRun& bucket, MessageRun& message, uint64_t turn) {
  submit(bucket, message, turn, turn % sdk::kTagLimit);
}

void skip(BucketRun& bucket, const MessageRun& message) {
  if (message.is_announced()) return;  // it has had no turn
  const Link& link = *message.link;
  if ((link.channel->traits.flags & PENSTOCK_COLLECTIVE_ORDERED) != 0)
    bucket.context.communication->skip(link.channel, link.sequence_base + message.order);
}

Status prepare(BucketRun& bucket, Leg& leg, MessageRun& message, uint32_t round) {
  switch (message.kind) {
    case MessageKind::gather:
      close_gathered(message, round);
      break;
    case MessageKind::scattered:
      return pack_scattered(bucket, message);
    case MessageKind::spread:
      mark_spread(bucket, message);
      break;
    case MessageKind::sparse:
      for (StateView* state : message.state_views) PENSTOCK_TRY(state->open());
      break;
    case MessageKind::passed_on:
      break;
    case MessageKind::header:
      write_header(bucket, leg, round);
      break;
    default:
      if (is_plain(message)) break;
      if (message.coding->nonfinite) std::memset(message.send.data(), 0, message.send.bytes());
      if (message.has_flag)
        write_flag(message.message.dtype, message.send.data(), message.flag_index,
                   summed_flag(bucket, message.coding->nonfinite));
  }
  return {};
}

void write_flag(uint32_t dtype, void* elements, uint64_t index, float flag) {
  auto* bytes = static_cast<std::byte*>(elements);
  from_float32(dtype, &flag, bytes + index * dtype_bytes(dtype), 1);
}

float flag_at(uint32_t dtype, const void* elements, uint64_t index) {
  float flag = 0;
  to_float32(dtype, static_cast<const std::byte*>(elements) + index * dtype_bytes(dtype), &flag, 1);
  return flag;
}

Status Ask::begin(BucketRun& bucket) {
  bucket.begin_transfers(1);
  submit(bucket, *coding_.prologue);
  return {};
}

Status Ask::end(BucketRun& bucket) {
  return read_flag(bucket, *coding_.prologue, coding_.prologue->send.data());
}

Exchange::Exchange(Leg& leg, uint32_t round)
    : RoundStage(leg, round, "exchange", Part::exchange, Wait::messages),
      messages_(leg.sent_together(round)) {}

Status Exchange::begin(BucketRun& bucket) {
  bucket.exchange_bytes = 0;
  for (MessageRun* message : messages_) PENSTOCK_TRY(prepare(bucket, leg_, *message, round_));
  bucket.begin_transfers(static_cast<uint32_t>(messages_.size()));
  for (MessageRun* message : messages_) {
    bucket.exchange_bytes += bytes_handed_over(message->message, message->group_size());
    submit(bucket, *message);
  }
  return {};
}

void skip_all(BucketRun& bucket) {
  bucket.each_message([&](uint32_t, uint32_t, MessageRun& message) { skip(bucket, message); });
}

Status Read::begin(BucketRun& bucket) {
  const uint32_t round = round_;
  for (auto& message : leg_.messages[round]) {
    switch (message->kind) {
      case MessageKind::header:
      case MessageKind::turn:
        continue;
      case MessageKind::gather:
        if (!message->is_announced()) PENSTOCK_TRY(read_gathered(bucket, *message, round));
        continue;
      case MessageKind::scattered:
        PENSTOCK_TRY(read_scattered(bucket, *message));
        continue;
      case MessageKind::spread:
        PENSTOCK_TRY(unpack_spread(bucket, *message));
        continue;
      default:
        break;
    }
    if (!leg_.kind.decodes) continue;  // a part of the sum, for a leg to come
    PENSTOCK_TRY(read_flag(bucket, *message, message->message.receive));
    if (message->kind == MessageKind::sparse) continue;
    for (size_t position : message->items) {
      ItemRun& item = message->coding->items[position];
      const uint32_t kind = item.own[round].c()->kind;
      item.received[round][0].c()->kind =
          kind == PENSTOCK_PAYLOAD_ABSENT ? uint32_t{PENSTOCK_PAYLOAD_CODED} : kind;
    }
  }
  return {};
}

}  // namespace penstock

#include "core/bucket/exchange.hpp"

#include "core/bucket/sums.hpp"
#include "core/comm/channel.hpp"

#include <kernels/message.hpp>

namespace penstock {
namespace {

// `sequence` is used if the message's channel is ordered, `tag` if it is not.
void submit(BucketRun& bucket, MessageRun& message, uint64_t sequence, uint64_t tag) {
  message.message.id = sdk::step_message_id(bucket.context.attempt, bucket.number, message.order);
  message.message.tag = tag;
  message.sequence = sequence;
  message.sent = true;
  // The engine announces it.
  bucket.context.communication->submit_quietly(message.link->channel, &message);
}
}  // namespace

Status prepare(BucketRun& bucket, Leg& leg, uint32_t round,
               const std::vector<MessageRun*>& messages) {
  const uint64_t begun_us = now_us();
  for (MessageRun* message : messages) PENSTOCK_TRY(message->prepare(leg, round));
  if (leg.kind.encodes) bucket.add_apart(Stage::Part::encode, now_us() - begun_us);
  return {};
}

void submit(BucketRun& bucket, MessageRun& message) {
  // A tag is used again eight steps later; by then every message of the older step has ended.
  const uint64_t tag = bucket.context.attempt % 8 * bucket.context.tags_per_step + message.order;
  submit(bucket, message, message.link->sequence_base + message.order, tag);
}
// Orders the message by its ticket among the exchanges of all sets. A tag is used again a million
// tickets later. By then the older message has ended, because it is under way on every rank by its
// ticket and waits for no application.
void submit_by_ticket(BucketRun& bucket, MessageRun& message, uint64_t ticket) {
  submit(bucket, message, ticket, ticket % sdk::kTagLimit);
}

void skip(BucketRun& bucket, const MessageRun& message) {
  if (message.is_announced()) return;  // no ticket was drawn for it
  const Link& link = *message.link;
  if ((link.channel->traits.flags & PENSTOCK_COLLECTIVE_ORDERED) != 0)
    bucket.context.communication->skip(link.channel, link.sequence_base + message.order);
}

Status Ask::begin(BucketRun& bucket) {
  bucket.begin_transfers(1);
  submit(bucket, *coding_.prologue);
  return {};
}

Status Ask::end(BucketRun&) {
  return static_cast<FlagMessage&>(*coding_.prologue).take();
}

Exchange::Exchange(Leg& leg, uint32_t round)
    : RoundStage(leg, round, "exchange", Part::exchange, Wait::messages),
      messages_(leg.sent_together(round)) {}

Status Exchange::begin(BucketRun& bucket) {
  bucket.exchange_bytes = 0;
  PENSTOCK_TRY(prepare(bucket, leg_, round_, messages_));
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

Status Read::begin(BucketRun&) {
  for (auto& message : leg_.messages[round_]) PENSTOCK_TRY(message->read(leg_, round_));
  return {};
}

}  // namespace penstock

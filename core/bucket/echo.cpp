#include "core/bucket/echo.hpp"

#include "core/bucket/exchange.hpp"

#include <algorithm>
#include <cstring>

namespace penstock {
namespace {

// The same of every rank.
void repeat_for_all(MessageRun& message) {
  const uint64_t bytes = message.message.count;
  for (size_t rank = 0; rank < message.receive_counts.size(); ++rank) {
    std::memcpy(message.receive.data() + message.receive_offsets[rank], message.send.data(), bytes);
    message.receive_counts[rank] = bytes;
  }
}

// Taken whole: nothing is refused.
void take_pairs(MessageRun& message, uint32_t round) {
  for (const size_t position : message.items) {
    ItemRun& item = message.coding->items[position];
    PayloadStorage& sent = item.own[round];
    PayloadStorage& received = item.received[round][0];
    received.c()->kind = sent.c()->kind;
    for (size_t s = 0; s < sent.size(); ++s) {
      penstock_section& section = received.section(s);
      section.count = std::min(sent.section(s).count, section.capacity);
      std::memcpy(section.data, sent.section(s).data, section.count * dtype_bytes(section.dtype));
    }
    item.refused.absent();
  }
}

}  // namespace

Echo::Echo(Leg& leg, uint32_t round)
    : RoundStage(leg, round, "echo"), messages_(leg.sent_together(round)) {}

Status Echo::begin(BucketRun& bucket) {
  for (MessageRun* message : messages_) {
    PENSTOCK_TRY(prepare(bucket, leg_, *message, round_));
    if (!message->receive_counts.empty())
      repeat_for_all(*message);
    else if (message->kind == MessageRun::Kind::sparse)
      take_pairs(*message, round_);
    else if (message->receive.bytes() != 0)
      std::memcpy(message->receive.data(), message->send.data(), message->receive.bytes());
  }
  return {};
}

}  // namespace penstock

#include "core/tuning/alone.hpp"

#include "core/bucket/calls.hpp"
#include "core/bucket/device.hpp"
#include "core/bucket/direct.hpp"
#include "core/bucket/watch.hpp"
#include "core/bucket/wire.hpp"

#include <algorithm>

namespace penstock {
namespace {

constexpr uint64_t kDeviceLimitUs = 5'000'000;

Status wait_for_device(const BucketRun& bucket) {
  return bucket.device == nullptr ? Status() : bucket.context.residents->drain(kDeviceLimitUs);
}

// The same of every rank, in a message of host memory.
void repeat_for_all(MessageRun& message) {
  const uint64_t bytes = message.message.count;
  for (size_t r = 0; r < message.receive_counts.size(); ++r) {
    std::memcpy(message.receive.data() + message.receive_offsets[r], message.send.data(), bytes);
    message.receive_counts[r] = bytes;
  }
}

void arrive(MessageRun& message, uint32_t round) {
  if (message.kind == MessageRun::Kind::gather) {
    close_gathered(message, round);
    repeat_for_all(message);
  } else if (message.kind == MessageRun::Kind::sparse) {
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
  } else if (message.receive.bytes() != 0) {
    std::memcpy(message.receive.data(), message.send.data(), message.receive.bytes());
  }
}

// From this device to itself.
Status arrive_there(const Stream& stream, MessageRun& message) {
  if (message.kind != MessageRun::Kind::gather)
    return stream.copy_on_device(message.receive.data(), message.send.data(),
                                 message.receive.bytes());
  for (const uint64_t offset : message.receive_offsets)
    PENSTOCK_TRY(stream.copy_on_device(message.receive.data() + offset, message.message.send,
                                       message.message.count));
  return {};
}

// With a header, as between ranks, and no turn: there is nobody to come before.
Status arrive_directly(BucketRun& bucket, Leg& leg, uint32_t round) {
  const Prelude& prelude = leg.preludes[round];
  write_header(bucket, leg, round);
  repeat_for_all(*prelude.header);
  PENSTOCK_TRY(read_headers(bucket, leg, round));
  PENSTOCK_TRY(prepare_direct(bucket, leg, round));
  for (auto& message : leg.messages[round])
    if (message->is_direct())
      PENSTOCK_TRY(arrive_there(bucket.context.residents->stream(), *message));
  PENSTOCK_TRY(look_at_indices(bucket, leg, round));
  PENSTOCK_TRY(wait_for_device(bucket));
  return take_verdicts(bucket, leg, round);
}

Status exchange_alone(BucketRun& bucket, Leg& leg, uint32_t round) {
  for (auto& message : leg.messages[round]) {
    const bool is_of_prelude =
        message->kind == MessageRun::Kind::header || message->kind == MessageRun::Kind::turn;
    if (!is_of_prelude && !message->is_direct()) arrive(*message, round);
  }
  if (has_direct(leg, round)) PENSTOCK_TRY(arrive_directly(bucket, leg, round));
  return read_round(bucket, leg, round);
}

Status encode_alone(BucketRun& bucket, Leg& leg, uint32_t round) {
  PENSTOCK_TRY(encode(bucket, leg, round));
  PENSTOCK_TRY(wait_for_device(bucket));
  PENSTOCK_TRY(take_counts(bucket, leg, round));
  PENSTOCK_TRY(bring_payloads(bucket, leg, round));
  PENSTOCK_TRY(wait_for_device(bucket));
  note_encoded(bucket);
  return {};
}

}  // namespace

Status run_alone(BucketRun& bucket) {
  PENSTOCK_TRY(look_on_device(bucket));
  PENSTOCK_TRY(wait_for_device(bucket));
  PENSTOCK_TRY(take_in(bucket));
  for (Leg& leg : bucket.legs) {
    Coding& coding = *leg.coding;
    PENSTOCK_TRY(begin(bucket, coding));
    if (coding.prologue != nullptr) {
      PENSTOCK_TRY(measure(bucket, coding));
      PENSTOCK_TRY(wait_for_device(bucket));
      take_scalars(bucket, coding);
    }
    PENSTOCK_TRY(compensate(bucket, coding));
    for (uint32_t round = 0; round < leg.messages.size(); ++round) {
      PENSTOCK_TRY(encode_alone(bucket, leg, round));
      PENSTOCK_TRY(exchange_alone(bucket, leg, round));
      PENSTOCK_TRY(decode(bucket, leg, round));
    }
  }
  PENSTOCK_TRY(settle(bucket));
  PENSTOCK_TRY(wait_for_device(bucket));
  return take_watched(bucket);
}

}  // namespace penstock

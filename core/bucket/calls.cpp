#include "core/bucket/calls.hpp"

#include "core/bucket/call_plugin.hpp"
#include "core/bucket/wire.hpp"
#include "core/comm/channel.hpp"
#include "core/tensor/elements.hpp"

#include <kernels/message.hpp>

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

TimedSpan span(BucketRun& bucket, std::string_view what) {
  return TimedSpan(bucket.context.timeline, what, bucket.lane, bucket.context.step.index,
                   bucket.scheme);
}

// Where nothing keeps float32, 16 bits hold the gradient and the carry, rounded once.
void add_carry_to_halves(uint32_t dtype, void* values, const float* carry, uint64_t count,
                         float scale) {
  constexpr uint64_t kTile = 1024;
  float sum[kTile];
  for (uint64_t start = 0; start < count; start += kTile) {
    const uint64_t part = std::min(kTile, count - start);
    auto* halves = static_cast<uint16_t*>(values) + start;
    to_float32(dtype, halves, sum, part);
    for (uint64_t i = 0; i < part; ++i) sum[i] += carry[start + i] * scale;
    from_float32(dtype, sum, halves, part);
  }
}

// All of it is looked at, but for a large gradient that travels as it is: there a sweep would be
// all that is done to it. Its beginning, its end and a part that moves on with the steps tell a
// gradient that is not finite as a whole, which is what a loss that is not finite leaves behind.
bool looks_finite(const ItemRun& item, const void* values, uint64_t step) {
  constexpr uint64_t kPart = 4096, kLarge = 16 * kPart;
  const uint64_t count = item.piece.numel;
  if (!item.passes_through || count <= kLarge) return all_finite(item.dtype, values, count);
  const uint64_t parts = count / kPart;
  const auto* bytes = static_cast<const std::byte*>(values);
  const auto part = [&](uint64_t first) {
    return all_finite(item.dtype, bytes + first * dtype_bytes(item.dtype), kPart);
  };
  return part(0) && part(count - kPart) && part(step % parts * kPart);
}

void note_nonfinite(SetContext& context, const ItemRun& item) {
  uint64_t none = SetContext::kNoGradient;
  context.nonfinite_gradient.compare_exchange_strong(none, item.gradient->index,
                                                     std::memory_order_relaxed);
}

void point(ItemRun& item, void* values) {
  for (penstock_item* c : {&item.for_compressor, &item.for_memory}) {
    c->grad.data = values;
    c->out.data = values;
    c->work.data = item.work_is == PENSTOCK_WORK_IS_GRAD    ? values
                   : item.work_is == PENSTOCK_WORK_IS_STATE ? item.work_state.data
                                                            : item.work.data();
    c->learning_rate = item.gradient->learning_rate;
  }
}

// The section counts of a summed payload never travel, so they must be what was planned; one that
// is absent adds zeros, and not what an earlier step has left in the message.
Status check_own(const BucketRun& bucket, ItemRun& item, uint32_t round) {
  const RoundNeed& need = item.rounds[round];
  PayloadStorage& payload = item.own[round];
  if (need.combine == PENSTOCK_COMBINE_SUM && payload.c()->kind == PENSTOCK_PAYLOAD_ABSENT)
    for (size_t s = 0; s < payload.size(); ++s)
      std::memset(payload.section(s).data, 0, need.sections[s].bytes());
  for (size_t s = 0; s < payload.size(); ++s) {
    const uint64_t count = payload.section(s).count;
    const uint64_t capacity = need.sections[s].capacity;
    const bool exact = need.combine == PENSTOCK_COMBINE_SUM || need.sections[s].exact;
    if (count > capacity ||
        (exact && count != capacity && payload.c()->kind != PENSTOCK_PAYLOAD_ABSENT))
      return internal(
          "compressor '{}' wrote {} elements for gradient '{}' into section {}, {} {} planned ({})",
          item.compressor->name(), count, item.gradient->name, s, exact ? "exactly" : "at most",
          capacity, bucket.label);
  }
  return {};
}

Status call_encode(BucketRun& bucket, CompressorCall& call) {
  const auto noted = plugin_call(bucket, "compressor", call.compressor->name(), "encode");
  const SetContext& context = bucket.context;
  return call_plugin(*call.compressor, "encode", call.items, [&] {
    void* self = call.compressor->self();
    if (call.fold_encoder != nullptr)
      return call.fold_encoder->encode(self, &context.exec, &context.step, call.round,
                                       call.items.data(), call.items.size(), call.own.data(),
                                       call.folds.data());
    return call.compressor->table()->encode(self, &context.exec, &context.step, call.round,
                                            call.items.data(), call.items.size(), call.own.data());
  });
}

void set_flag(BucketRun& bucket, MessageRun& message) {
  if (!message.has_flag) return;
  const float flag = bucket.nonfinite ? 1 : 0;
  const uint64_t element = dtype_bytes(message.message.dtype);
  from_float32(message.message.dtype, &flag, message.send.data() + message.flag_index * element, 1);
}

void read_flag(BucketRun& bucket, const MessageRun& message, const std::byte* arrived) {
  if (!message.has_flag) return;
  float flag = 0;
  to_float32(message.message.dtype,
             arrived + message.flag_index * dtype_bytes(message.message.dtype), &flag, 1);
  if (flag != 0) bucket.is_void = true;
}

void submit(BucketRun& bucket, MessageRun& message) {
  const uint64_t step = bucket.context.step.index;
  message.message.id = sdk::step_message_id(step, bucket.number, message.order);
  // Eight steps apart a tag comes again; by then every message of the older step has ended.
  message.message.tag = step % 8 * bucket.context.tags_per_step + message.order;
  message.sequence = bucket.context.sequence_base + message.order;
  message.sent = true;
  // The engine announces it.
  bucket.context.communication->submit_quietly(message.channel, &message);
}

void skip(BucketRun& bucket, const MessageRun& message) {
  if ((message.channel->traits.flags & PENSTOCK_COLLECTIVE_ORDERED) != 0)
    bucket.context.communication->skip(message.channel,
                                       bucket.context.sequence_base + message.order);
}

}  // namespace

void add_carry(const ItemRun& item, void* values, double scale) {
  const float* carry = item.gradient->carry.as<float>() + item.piece.first;
  if (item.dtype == PENSTOCK_FLOAT32) {
    auto* target = static_cast<float*>(values);
    for (uint64_t i = 0; i < item.piece.numel; ++i)
      target[i] += carry[i] * static_cast<float>(scale);
  } else if (item.dtype == PENSTOCK_FLOAT64) {
    auto* target = static_cast<double*>(values);
    for (uint64_t i = 0; i < item.piece.numel; ++i) target[i] += carry[i] * scale;
  } else if (item.dtype == PENSTOCK_FLOAT16 || item.dtype == PENSTOCK_BFLOAT16) {
    add_carry_to_halves(item.dtype, values, carry, item.piece.numel, static_cast<float>(scale));
  }
}

void take_in(BucketRun& bucket) {
  bucket.nonfinite = false;
  bucket.is_void = false;
  bucket.compensated = false;
  bucket.rounds_encoded = 0;
  bucket.ran = true;
  bucket.failure = Status();
  bucket.each_message([](uint32_t, uint32_t, MessageRun& message) { message.sent = false; });
  for (ItemRun& item : bucket.items) {
    void* values = item.storage();
    if (item.widened) {
      to_float32(item.gradient->dtype, values, item.wide.as<float>(), item.piece.numel);
      values = item.wide.data();
    }
    if (item.gradient->has_carry && !item.carry_joins_result)
      add_carry(item, values, bucket.context.step.grad_scale);
    if (!looks_finite(item, values, bucket.context.step.index)) {
      note_nonfinite(bucket.context, item);
      // What travels as it is arrives as it is, on every rank.
      bucket.nonfinite = bucket.nonfinite || !item.passes_through;
    }
    point(item, values);
  }
}

Status measure(BucketRun& bucket) {
  auto* scalars = bucket.prologue->send.as<float>();
  std::fill_n(scalars, bucket.prologue->message.count, 0.0f);
  set_flag(bucket, *bucket.prologue);
  if (bucket.nonfinite) return {};
  for (MemoryCall& call : bucket.memory_calls) {
    if (call.n_scalars == 0) continue;
    const auto noted = plugin_call(bucket, "memory", call.memory->name(), "measure");
    PENSTOCK_TRY(call_plugin(*call.memory, "measure", call.items, [&] {
      return call.memory->table()->measure(call.memory->self(), &bucket.context.exec,
                                           &bucket.context.step, call.items.data(),
                                           call.items.size(), scalars + call.scalars_first);
    }));
  }
  return {};
}

Status compensate(BucketRun& bucket) {
  const auto timed = span(bucket, "compensate");
  const uint64_t start = now_us();
  // Under `strict` no rank adds anything of a step that is not finite somewhere.
  if (!bucket.nonfinite && !(bucket.is_void && bucket.context.nonfinite_is_strict)) {
    bucket.compensated = true;
    for (MemoryCall& call : bucket.memory_calls) {
      const float* summed =
          call.n_scalars == 0 ? nullptr : bucket.prologue->send.as<float>() + call.scalars_first;
      // Folded items are left to encode, which a bucket that is known to be void never reaches.
      const auto& items = bucket.is_void ? call.items : call.unfolded;
      if (items.empty()) continue;
      const auto noted = plugin_call(bucket, "memory", call.memory->name(), "compensate");
      PENSTOCK_TRY(call_plugin(*call.memory, "compensate", items, [&] {
        return call.memory->table()->compensate(call.memory->self(), &bucket.context.exec,
                                                &bucket.context.step, items.data(), items.size(),
                                                summed);
      }));
    }
  }
  bucket.encode_us = now_us() - start;
  bucket.decode_us = 0;
  // Nothing travels for these in this phase: their result is zero.
  for (ItemRun& item : bucket.items)
    if (item.rounds.empty() && item.work_is != PENSTOCK_WORK_IS_GRAD)
      std::memset(item.for_memory.out.data, 0, item.piece.numel * dtype_bytes(item.dtype));
  return {};
}

Status encode(BucketRun& bucket, uint32_t round) {
  const auto timed = span(bucket, "encode");
  const uint64_t start = now_us();
  for (auto& message : bucket.legs.front().messages[round])
    if (message->kind == MessageRun::Kind::gather) place_gathered(bucket, *message, round);
  for (CompressorCall& call : bucket.encode_calls) {
    if (call.round != round) continue;
    if (bucket.nonfinite) {
      for (size_t position : call.positions) bucket.items[position].own[round].absent();
      continue;
    }
    const uint64_t called = now_us();
    PENSTOCK_TRY(call_encode(bucket, call));
    call.took_us = now_us() - called;
    for (size_t position : call.positions)
      PENSTOCK_TRY(check_own(bucket, bucket.items[position], round));
  }
  bucket.rounds_encoded = round + 1;
  bucket.encode_us += now_us() - start;
  return {};
}

void send_prologue(BucketRun& bucket) {
  bucket.begin_transfers(1);
  submit(bucket, *bucket.prologue);
}

void send_round(BucketRun& bucket, Leg& leg, uint32_t round) {
  bucket.exchange_start_us = now_us();
  bucket.exchange_bytes = 0;
  bucket.begin_transfers(static_cast<uint32_t>(leg.messages[round].size()));
  for (auto& sent : leg.messages[round]) {
    MessageRun& message = *sent;
    if (message.kind == MessageRun::Kind::gather) {
      const bool exact = (message.message.flags & PENSTOCK_MESSAGE_EXACT_COUNTS) != 0;
      message.message.count = close_gathered(bucket, message, round, exact);
      std::fill(message.receive_counts.begin(), message.receive_counts.end(), message.send.bytes());
    } else if (message.kind == MessageRun::Kind::sum &&
               bucket.items[message.items.front()].passes_through) {
      ItemRun& item = bucket.items[message.items.front()];
      message.message.send = item.for_compressor.grad.data;
      message.message.receive = item.for_compressor.grad.data;
    } else if (message.kind != MessageRun::Kind::passed_on &&
               message.kind != MessageRun::Kind::sparse) {
      if (bucket.nonfinite) std::memset(message.send.data(), 0, message.send.bytes());
      set_flag(bucket, message);
    }
    bucket.exchange_bytes += bytes_handed_over(message.message, bucket.context.world);
    submit(bucket, message);
  }
}

void skip_unsent(BucketRun& bucket) {
  bucket.each_message([&](uint32_t, uint32_t, MessageRun& message) {
    if (!message.sent) skip(bucket, message);
  });
}

void skip_all(BucketRun& bucket) {
  if (bucket.prologue != nullptr) skip(bucket, *bucket.prologue);
  bucket.each_message([&](uint32_t, uint32_t, MessageRun& message) { skip(bucket, message); });
}

void read_prologue(BucketRun& bucket) {
  read_flag(bucket, *bucket.prologue, bucket.prologue->send.data());
}

void note_arrival(BucketRun& bucket) {
  const uint64_t now = now_us();
  bucket.exchange_us = now - bucket.exchange_start_us;
  if (bucket.context.timeline->enabled())
    bucket.context.timeline->add({"exchange", bucket.lane, bucket.exchange_start_us, now,
                                  bucket.context.step.index, bucket.scheme, bucket.exchange_bytes,
                                  0});
}

Status read_round(BucketRun& bucket, Leg& leg, uint32_t round) {
  for (auto& message : leg.messages[round]) {
    if (message->kind == MessageRun::Kind::gather) {
      PENSTOCK_TRY(read_gathered(bucket, *message, round));
      continue;
    }
    read_flag(bucket, *message, static_cast<const std::byte*>(message->message.receive));
    if (message->kind == MessageRun::Kind::sparse) continue;
    for (size_t position : message->items) {
      ItemRun& item = bucket.items[position];
      const uint32_t kind = item.own[round].c()->kind;
      item.received[round][0].c()->kind =
          kind == PENSTOCK_PAYLOAD_ABSENT ? uint32_t{PENSTOCK_PAYLOAD_CODED} : kind;
    }
  }
  return {};
}

Status decode(BucketRun& bucket, uint32_t round) {
  const auto timed = span(bucket, "decode");
  const uint64_t start = now_us();
  for (CompressorCall& call : bucket.decode_calls) {
    if (call.round != round) continue;
    const auto noted = plugin_call(bucket, "compressor", call.compressor->name(), "decode");
    const uint64_t called = now_us();
    PENSTOCK_TRY(call_plugin(*call.compressor, "decode", call.items, [&] {
      return call.compressor->table()->decode(call.compressor->self(), &bucket.context.exec,
                                              &bucket.context.step, round, call.items.data(),
                                              call.items.size(), call.received.data(), call.n_ranks,
                                              PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST);
    }));
    call.took_us = now_us() - called;
  }
  bucket.decode_us += now_us() - start;
  return {};
}

void give_out(BucketRun& bucket) {
  for (ItemRun& item : bucket.items)
    if (item.widened)
      from_float32(item.gradient->dtype, item.wide.as<float>(), item.storage(), item.piece.numel);
}

}  // namespace penstock

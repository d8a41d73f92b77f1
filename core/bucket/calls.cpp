// What a bucket's job computes: its own work, and calls of memories and compressors.

#include "core/bucket/calls.hpp"

#include "core/bucket/call_plugin.hpp"
#include "core/bucket/device.hpp"
#include "core/bucket/flag.hpp"
#include "core/bucket/plain.hpp"
#include "core/bucket/watch.hpp"
#include "core/bucket/wire.hpp"
#include "core/tensor/elements.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

TimedSpan span(BucketRun& bucket, std::string_view what) {
  return TimedSpan(bucket.context.timeline, what, bucket.lane, bucket.context.step.index,
                   bucket.scheme);
}

// From here on the step writes the next generation of the item's states. A folded sweep makes it
// in passing, if it comes to that.
Status open_states(ItemRun& item) {
  for (StateView* state : item.states) {
    if (item.is_folded_over(*state))
      state->open_unwritten();
    else
      PENSTOCK_TRY(state->open());
  }
  return {};
}

// Where it does not.
Status copy_unfolded(Coding& coding) {
  for (ItemRun& item : coding.items) {
    if (!item.folds_generations) continue;
    PENSTOCK_TRY(item.work_state->copy_after_all());
    if (item.folded_momentum != nullptr) PENSTOCK_TRY(item.folded_momentum->copy_after_all());
  }
  return {};
}

void point(ItemRun& item) {
  void* values = item.values();
  // Who only decodes, as of a sum that another rank owns, has no work.
  void* state = item.work_state == nullptr ? nullptr : item.work_state->c()->data;
  for (penstock_item* c : {&item.for_compressor, &item.for_memory}) {
    c->grad.data = values;
    c->out.data = values;
    c->work.data = item.work_is == PENSTOCK_WORK_IS_GRAD    ? values
                   : item.work_is == PENSTOCK_WORK_IS_STATE ? state
                   : item.is_on_device()                    ? item.work_there.data()
                                                            : item.work.data();
    c->learning_rate = item.gradient->learning_rate;
  }
}

// One that is absent adds zeros, and not what an earlier step has left in the message.
Status send_zeros(const BucketRun& bucket, ItemRun& item, uint32_t round) {
  const RoundNeed& need = item.rounds[round];
  PayloadStorage& payload = item.own[round];
  if (need.combine != PENSTOCK_COMBINE_SUM || payload.c()->kind != PENSTOCK_PAYLOAD_ABSENT)
    return {};
  for (size_t s = 0; s < payload.size(); ++s) {
    const penstock_section& section = payload.section(s);
    const uint64_t bytes = need.sections[s].bytes();
    if (!item.is_on_device())
      std::memset(section.data, 0, bytes);
    else if (section.on_host != nullptr)
      std::memset(const_cast<void*>(section.on_host), 0, bytes);
    else
      PENSTOCK_TRY(bucket.context.residents->stream().clear(section.data, bytes));
  }
  return {};
}

Status call_encode(BucketRun& bucket, Coding& coding, CompressorCall& call) {
  const auto noted = plugin_call(bucket, "compressor", call.compressor->name(), "encode");
  const penstock_exec& exec = bucket.context.exec_of(call.on_device);
  return call_plugin(*call.compressor, "encode", call.items, [&] {
    void* self = call.compressor->self();
    if (call.fold_encoder != nullptr)
      return call.fold_encoder->encode(self, &exec, &coding.step, call.round, call.items.data(),
                                       call.items.size(), call.own.data(), call.folds.data());
    return call.compressor->table()->encode(self, &exec, &coding.step, call.round,
                                            call.items.data(), call.items.size(), call.own.data());
  });
}

Status call_decode(BucketRun& bucket, Coding& coding, CompressorCall& call) {
  const auto noted = plugin_call(bucket, "compressor", call.compressor->name(), "decode");
  penstock_step step = coding.step;
  if (call.scales_result) step.result_scale = 1.0 / bucket.context.world;
  return call_plugin(*call.compressor, "decode", call.items, [&] {
    return call.compressor->table()->decode(
        call.compressor->self(), &bucket.context.exec_of(call.on_device), &step, call.round,
        call.items.data(), call.items.size(), call.received.data(), call.n_ranks,
        PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST);
  });
}

// As part of `whole_us`.
template <typename Make>
Status take_time(BucketRun& bucket, CompressorCall& call, uint64_t& whole_us, const Make& make) {
  const uint64_t called = now_us();
  PENSTOCK_TRY(begin_watch(bucket, call.watch.get()));
  PENSTOCK_TRY(make());
  PENSTOCK_TRY(end_watch(bucket, call.watch.get()));
  const uint64_t took_us = now_us() - called;
  if (!call.on_device) call.took_us = took_us;
  note_call(bucket, call.on_device, took_us, whole_us);
  return {};
}

}  // namespace

// The section counts of a summed payload never travel, so they must be what was planned.
Status check_own(const BucketRun& bucket, ItemRun& item, uint32_t round) {
  const RoundNeed& need = item.rounds[round];
  PayloadStorage& payload = item.own[round];
  for (size_t s = 0; s < payload.size(); ++s) {
    const uint64_t count = payload.section(s).count;
    const uint64_t capacity = need.sections[s].capacity;
    const bool exact = need.combine == PENSTOCK_COMBINE_SUM || need.sections[s].exact;
    if (count == PENSTOCK_COUNT_ON_DEVICE && payload.section(s).device_count != nullptr) continue;
    if (count > capacity ||
        (exact && count != capacity && payload.c()->kind != PENSTOCK_PAYLOAD_ABSENT))
      return internal(
          "compressor '{}' wrote {} elements for gradient '{}' into section {}, {} {} planned ({})",
          item.compressor->name(), count, item.gradient->name, s, exact ? "exactly" : "at most",
          capacity, bucket.label);
  }
  return {};
}

Status begin(BucketRun& bucket, Coding& coding) {
  coding.has_begun = true;
  coding.step = bucket.context.step;
  coding.step.rank = coding.rank();
  coding.step.world = coding.n_ranks();
  if (coding.alone) {
    coding.step.grad_scale = 1;
    take_sums(bucket, coding);
  }
  for (ItemRun& item : coding.items) {
    if (!item.encodes && !item.decodes) continue;
    PENSTOCK_TRY(open_states(item));
    point(item);
  }
  return {};
}

Status measure(BucketRun& bucket, Coding& coding) {
  auto* scalars = coding.prologue->send.as<float>();
  std::fill_n(scalars, coding.prologue->message.count, 0.0f);
  write_flag(PENSTOCK_FLOAT32, coding.prologue->send.data(), coding.prologue->flag_index,
             summed_flag(bucket, coding.nonfinite));
  if (coding.nonfinite) return {};
  for (MemoryCall& call : coding.memory_calls) {
    if (call.n_scalars == 0) continue;
    float* place = call.on_device ? bucket.device->scalars.place(call.scalars_first)
                                  : scalars + call.scalars_first;
    const auto noted = plugin_call(bucket, "memory", call.memory->name(), "measure");
    PENSTOCK_TRY(call_plugin(*call.memory, "measure", call.items, [&] {
      return call.memory->table()->measure(call.memory->self(),
                                           &bucket.context.exec_of(call.on_device), &coding.step,
                                           call.items.data(), call.items.size(), place);
    }));
  }
  return bring_scalars(bucket, coding);
}

Status compensate(BucketRun& bucket, Coding& coding) {
  const auto timed = span(bucket, "compensate");
  const uint64_t start = now_us();
  PENSTOCK_TRY(begin_watch(bucket, coding.watch(0, &RoundWatches::encode)));
  if (coding.nonfinite || bucket.is_void) PENSTOCK_TRY(copy_unfolded(coding));
  // Under `strict` no rank adds anything of a step that is not finite somewhere.
  if (!coding.nonfinite && !(bucket.is_void && bucket.context.nonfinite_is_strict)) {
    coding.compensated = true;
    for (MemoryCall& call : coding.memory_calls) {
      const float* summed =
          call.n_scalars == 0 ? nullptr : coding.prologue->send.as<float>() + call.scalars_first;
      // Folded items are left to encode, which a bucket that is known to be void never reaches.
      const auto& items = bucket.is_void ? call.items : call.unfolded;
      if (items.empty()) continue;
      const auto noted = plugin_call(bucket, "memory", call.memory->name(), "compensate");
      const uint64_t called = now_us();
      PENSTOCK_TRY(call_plugin(*call.memory, "compensate", items, [&] {
        return call.memory->table()->compensate(call.memory->self(),
                                                &bucket.context.exec_of(call.on_device),
                                                &coding.step, items.data(), items.size(), summed);
      }));
      note_call(bucket, call.on_device, now_us() - called, bucket.encode_us);
    }
  }
  note_stage(bucket, now_us() - start, bucket.encode_us);
  // Nothing travels for these in this phase: their result is zero.
  for (ItemRun& item : coding.items) {
    if (!item.encodes || !item.rounds.empty() || item.range.numel == 0) continue;
    const uint64_t bytes = item.range.numel * dtype_bytes(item.dtype);
    if (item.is_on_device())
      PENSTOCK_TRY(bucket.context.residents->stream().clear(item.for_memory.out.data, bytes));
    else
      std::memset(item.for_memory.out.data, 0, bytes);
  }
  return {};
}

Status encode(BucketRun& bucket, Leg& leg, uint32_t round) {
  const auto timed = span(bucket, "encode");
  bucket.encode_start_us = now_us();
  Coding& coding = *leg.coding;
  Stopwatch* const watch = coding.watch(round, &RoundWatches::encode);
  if (round > 0) PENSTOCK_TRY(begin_watch(bucket, watch));  // the first begins with compensate
  for (auto& message : leg.messages[round]) {
    if (message->kind == MessageRun::Kind::gather) place_gathered(*message, round);
    if (is_plain(*message)) PENSTOCK_TRY(send_from_where_it_lies(*message));
  }
  for (CompressorCall& call : coding.encode_calls) {
    if (call.round != round) continue;
    if (coding.nonfinite) {
      for (size_t position : call.positions) coding.items[position].own[round].absent();
      continue;
    }
    PENSTOCK_TRY(take_time(bucket, call, bucket.encode_us,
                           [&] { return call_encode(bucket, coding, call); }));
    for (size_t position : call.positions) {
      PENSTOCK_TRY(send_zeros(bucket, coding.items[position], round));
      PENSTOCK_TRY(check_own(bucket, coding.items[position], round));
    }
  }
  coding.rounds_encoded = round + 1;
  PENSTOCK_TRY(end_watch(bucket, watch));
  return bring_counts(bucket, leg, round);
}

void note_encoded(BucketRun& bucket) {
  note_stage(bucket, now_us() - bucket.encode_start_us, bucket.encode_us);
}

Status decode(BucketRun& bucket, Leg& leg, uint32_t round) {
  const auto timed = span(bucket, "decode");
  const uint64_t start = now_us();
  Coding& coding = *leg.coding;
  Stopwatch* const watch = coding.watch(round, &RoundWatches::decode);
  PENSTOCK_TRY(begin_watch(bucket, watch));
  for (auto& message : leg.messages[round])
    if (is_plain(*message)) PENSTOCK_TRY(receive_where_it_lies(*message));
  PENSTOCK_TRY(take_payloads(bucket, leg, round));
  for (CompressorCall& call : coding.decode_calls) {
    if (call.round != round) continue;
    PENSTOCK_TRY(take_time(bucket, call, bucket.decode_us,
                           [&] { return call_decode(bucket, coding, call); }));
  }
  PENSTOCK_TRY(end_watch(bucket, watch));
  note_stage(bucket, now_us() - start, bucket.decode_us);
  return {};
}

Status give_out(BucketRun& bucket) {
  for (PieceRun& piece : bucket.pieces) {
    if (piece.is_on_device()) {
      PENSTOCK_TRY(give_out_on_device(bucket, piece));
      continue;
    }
    if (bucket.is_void)
      fill_nan(piece.dtype, piece.values, piece.piece.numel);
    else if (bucket.only_compensates && piece.piece.numel != 0)
      std::memset(piece.values, 0, piece.piece.numel * dtype_bytes(piece.dtype));
    if (piece.widened)
      from_float32(piece.gradient->dtype, piece.wide.as<float>(), piece.storage(),
                   piece.piece.numel);
    if (piece.workplace == Workplace::mirror) {
      const uint64_t element = dtype_bytes(piece.gradient->dtype);
      const Status given =
          piece.gradient->mirror->give(piece.piece.first * element, piece.piece.numel * element);
      if (!given.ok())
        return given.with_context(fmt::format("gradient '{}'", piece.gradient->name));
    }
  }
  return {};
}

}  // namespace penstock

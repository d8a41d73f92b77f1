// What a bucket's job computes: its own work, and calls of memories and compressors.

#include "core/bucket/calls.hpp"

#include "core/bucket/call_plugin.hpp"
#include "core/bucket/device.hpp"
#include "core/bucket/flag.hpp"
#include "core/bucket/plain.hpp"
#include "core/bucket/watch.hpp"
#include "core/bucket/wire.hpp"
#include "core/tensor/elements.hpp"

#include <kernels/norm.hpp>

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
bool looks_finite(const PieceRun& item, uint64_t step) {
  constexpr uint64_t kPart = 4096, kLarge = 16 * kPart;
  const uint64_t count = item.piece.numel;
  if (!item.is_never_void || count <= kLarge) return all_finite(item.dtype, item.values, count);
  const uint64_t parts = count / kPart;
  const auto* bytes = static_cast<const std::byte*>(item.values);
  const auto part = [&](uint64_t first) {
    return all_finite(item.dtype, bytes + first * dtype_bytes(item.dtype), kPart);
  };
  return part(0) && part(count - kPart) && part(step % parts * kPart);
}

// Rare: see let_go.cpp.
void add_norm(BucketRun& bucket, const PieceRun& piece) {
  if (piece.dtype != PENSTOCK_FLOAT32) return;
  const double scale = bucket.context.step.grad_scale;
  bucket.context.square_norm.fetch_add(
      kernels::sum_of_squares(static_cast<const float*>(piece.values), piece.piece.numel,
                              kernels::CodePath::kPortable) /
      (scale * scale));
}

void note_nonfinite(SetContext& context, const Gradient& gradient) {
  uint64_t none = SetContext::kNoGradient;
  context.nonfinite_gradient.compare_exchange_strong(none, gradient.index,
                                                     std::memory_order_relaxed);
}

void take_note(BucketRun& bucket, const PieceRun& piece, bool is_finite) {
  if (is_finite) return;
  note_nonfinite(bucket.context, *piece.gradient);
  // What travels as it is arrives as it is, on every rank.
  bucket.nonfinite = bucket.nonfinite || !piece.is_never_void;
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
  for (penstock_item* c : {&item.for_compressor, &item.for_memory}) {
    c->grad.data = values;
    c->out.data = values;
    c->work.data = item.work_is == PENSTOCK_WORK_IS_GRAD    ? values
                   : item.work_is == PENSTOCK_WORK_IS_STATE ? item.work_state->c()->data
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

bool take_sum(BucketRun& bucket, const ItemRun& item) {
  void* values = item.values();
  const double factor = to_true_units(bucket, item);
  if (factor != 1) scale(item.dtype, values, item.range.numel, factor);
  return all_finite(item.dtype, values, item.range.numel);
}

// Those on a device have been looked at.
void take_sums(BucketRun& bucket, Coding& coding) {
  for (size_t i = 0; i < coding.items.size(); ++i) {
    const ItemRun& item = coding.items[i];
    if (!item.encodes) continue;
    const bool is_finite =
        item.is_on_device() ? bucket.device->sums[i] == 0 : take_sum(bucket, item);
    if (is_finite) continue;
    note_nonfinite(bucket.context, *item.gradient);
    coding.nonfinite = true;
  }
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

double to_true_units(const BucketRun& bucket, const ItemRun& sum) {
  return sum.sum_of->work_is == PENSTOCK_WORK_IS_GRAD ? 1 / bucket.context.step.grad_scale : 1;
}

void add_carry(const Gradient& gradient, const ElementRange& range, uint32_t dtype, void* values,
               double scale) {
  const float* carry = gradient.carry.as<float>() + range.first;
  if (dtype == PENSTOCK_FLOAT32) {
    auto* target = static_cast<float*>(values);
    for (uint64_t i = 0; i < range.numel; ++i) target[i] += carry[i] * static_cast<float>(scale);
  } else if (dtype == PENSTOCK_FLOAT64) {
    auto* target = static_cast<double*>(values);
    for (uint64_t i = 0; i < range.numel; ++i) target[i] += carry[i] * scale;
  } else if (dtype == PENSTOCK_FLOAT16 || dtype == PENSTOCK_BFLOAT16) {
    add_carry_to_halves(dtype, values, carry, range.numel, static_cast<float>(scale));
  }
}

Status take_in(BucketRun& bucket) {
  bucket.nonfinite = false;
  bucket.is_void = false;
  bucket.ran = true;
  bucket.failure = Status();
  bucket.encode_us = bucket.decode_us = bucket.exchange_us = 0;
  bucket.each_message([](uint32_t, uint32_t, MessageRun& message) { message.sent = false; });
  for (size_t i = 0; i < bucket.pieces.size(); ++i) {
    PieceRun& piece = bucket.pieces[i];
    piece.values = piece.storage();
    if (piece.is_on_device()) {
      if (piece.widened) piece.values = piece.wide_there.data();
      take_note(bucket, piece, !bucket.device->is_nonfinite(i));
      continue;
    }
    if (piece.workplace == Workplace::mirror && piece.gradient->mirror->is_zero())
      std::memset(piece.values, 0, piece.piece.numel * dtype_bytes(piece.gradient->dtype));
    if (piece.widened) {
      to_float32(piece.gradient->dtype, piece.values, piece.wide.as<float>(), piece.piece.numel);
      piece.values = piece.wide.data();
    }
    if (piece.gradient->has_carry && !piece.carry_joins_result)
      add_carry(*piece.gradient, {piece.piece.first, piece.piece.numel}, piece.dtype, piece.values,
                bucket.context.step.grad_scale);
    take_note(bucket, piece, looks_finite(piece, bucket.context.step.index));
    if (bucket.context.measures_norm) add_norm(bucket, piece);
  }
  for (auto& coding : bucket.codings) {
    const bool takes_pieces = coding == bucket.codings.front() && coding->leg == 0;
    coding->nonfinite = takes_pieces && bucket.nonfinite;
    coding->has_begun = coding->compensated = coding->decoded = false;
    coding->rounds_encoded = 0;
    std::fill(coding->failed_owners.begin(), coding->failed_owners.end(), false);
  }
  return take_watched(bucket);
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

#include "core/bucket/coded.hpp"

#include "core/bucket/call_plugin.hpp"
#include "core/bucket/flag.hpp"
#include "core/bucket/load.hpp"
#include "core/bucket/sums.hpp"
#include "core/tensor/elements.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

// From here on the step writes the next generation of the item's states. For folded states the
// sweep of encode writes the next generation, if encode runs.
Status open_states(ItemRun& item) {
  for (StateView* state : item.states) {
    if (item.is_folded_over(*state))
      state->open_unwritten();
    else
      PENSTOCK_TRY(state->open());
  }
  return {};
}

// Copies folded states to their next generation if encode does not run.
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
  // An item that is only decoded, such as a sum that another rank owns, has no work.
  void* state = item.work_state == nullptr ? nullptr : item.work_state->c()->data;
  for (penstock_item* c : {&item.for_compressor, &item.for_memory}) {
    c->grad.data = values;
    c->out.data = values;
    c->work.data = item.work_is == PENSTOCK_WORK_IS_GRAD    ? values
                   : item.work_is == PENSTOCK_WORK_IS_STATE ? state
                                                            : item.work.data();
    c->learning_rate = item.gradient->learning_rate;
  }
}

// An absent payload must add zeros to a sum, not the values that an earlier step has left in the
// message.
Status send_zeros(ItemRun& item, uint32_t round) {
  const RoundNeed& need = item.rounds[round];
  PayloadStorage& payload = item.own[round];
  if (need.combine != PENSTOCK_COMBINE_SUM || payload.c()->kind != PENSTOCK_PAYLOAD_ABSENT)
    return {};
  for (size_t s = 0; s < payload.size(); ++s)
    PENSTOCK_TRY(item.place().clear(payload.section(s), need.sections[s].bytes()));
  return {};
}

Status call_encode(BucketRun& bucket, Coding& coding, CompressorCall& call) {
  const auto noted = plugin_call(bucket, "compressor", call.compressor->name(), "encode");
  const penstock_exec& exec = call.place->exec();
  return call_plugin(*call.compressor, "encode", call.items, [&] {
    void* self = call.compressor->self();
    if (call.fold_encoder != nullptr)
      return call.fold_encoder->encode(self, &exec, &coding.step, call.round, call.items.data(),
                                       call.items.size(), call.own.data(), call.folds.data());
    return call.compressor->table()->encode(self, &exec, &coding.step, call.round,
                                            call.items.data(), call.items.size(), call.own.data());
  });
}

// The first item whose values are not finite, as an encode that inspects says it; or null.
const ItemRun* found_not_finite(Coding& coding, const CompressorCall& call) {
  for (const size_t position : call.positions) {
    ItemRun& item = coding.items[position];
    if (item.of->inspected_by_encode && item.own.front().c()->kind == PENSTOCK_PAYLOAD_ABSENT)
      return &item;
  }
  return nullptr;
}

// Brings the coding into the state in which it would be if Load had found values that are not
// finite: this rank sends nothing, and no state has taken anything.
Status undo(BucketRun& bucket, Coding& coding) {
  bucket.nonfinite = coding.nonfinite = true;
  coding.compensated = false;
  for (ItemRun& item : coding.items) {
    for (StateView* state : item.states) PENSTOCK_TRY(state->copy_after_all());
    if (!item.own.empty()) item.own.front().absent();
  }
  return {};
}

// In a bucket that is timed on the device, only the calls that do their work at once add host time.
void note_call(BucketRun& bucket, const WorkPlace& place, uint64_t took_us, Stage::Part part) {
  if (!bucket.counts_host_time && place.works_at_once()) bucket.time_of(part) += took_us;
}

template <typename Make>
Status take_time(BucketRun& bucket, CompressorCall& call, Stage::Part part, const Make& make) {
  const uint64_t called = now_us();
  if (call.watch != nullptr) PENSTOCK_TRY(call.watch->begin());
  PENSTOCK_TRY(make());
  if (call.watch != nullptr) PENSTOCK_TRY(call.watch->end());
  const uint64_t took_us = now_us() - called;
  if (call.place->works_at_once()) call.took_us = took_us;
  note_call(bucket, *call.place, took_us, part);
  return {};
}

}  // namespace

Status call_decode(BucketRun& bucket, Coding& coding, CompressorCall& call) {
  const auto noted = plugin_call(bucket, "compressor", call.compressor->name(), "decode");
  penstock_step step = coding.step;
  if (call.scales_result) step.result_scale = 1.0 / bucket.context.world;
  return take_time(bucket, call, Stage::Part::decode, [&] {
    return call_plugin(*call.compressor, "decode", call.items, [&] {
      return call.compressor->table()->decode(call.compressor->self(), &call.place->exec(), &step,
                                              call.round, call.items.data(), call.items.size(),
                                              call.received.data(), call.n_ranks, call.flags);
    });
  });
}

// The section counts of a summed payload never travel, so they must equal the plan.
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

Status Begin::begin(BucketRun& bucket) {
  Coding& coding = coding_;
  coding.has_begun = true;
  coding.step = bucket.context.step;
  coding.step.rank = coding.rank();
  coding.step.world = coding.n_ranks();
  if (coding.of_sums) coding.step.grad_scale = 1;
  take_sums(bucket, coding);
  for (ItemRun& item : coding.items) {
    if (!item.encodes && !item.decodes) continue;
    PENSTOCK_TRY(open_states(item));
    point(item);
  }
  return {};
}

Status Measure::begin(BucketRun& bucket) {
  Coding& coding = coding_;
  auto* scalars = coding.prologue->send.as<float>();
  std::fill_n(scalars, coding.prologue->message.count, 0.0f);
  write_flag(PENSTOCK_FLOAT32, coding.prologue->send.data(), coding.prologue->flag_index,
             summed_flag(bucket, coding.nonfinite));
  if (coding.nonfinite) return {};
  for (MemoryCall& call : coding.memory_calls) {
    if (call.n_scalars == 0) continue;
    float* place = call.place->place_of_scalars(bucket, call, scalars + call.scalars_first);
    const auto noted = plugin_call(bucket, "memory", call.memory->name(), "measure");
    PENSTOCK_TRY(call_plugin(*call.memory, "measure", call.items, [&] {
      return call.memory->table()->measure(call.memory->self(), &call.place->exec(), &coding.step,
                                           call.items.data(), call.items.size(), place);
    }));
  }
  return {};
}

Status Compensate::call_memories(BucketRun& bucket) {
  coding_.compensated = true;
  for (MemoryCall& call : coding_.memory_calls) {
    const float* summed =
        call.n_scalars == 0 ? nullptr : coding_.prologue->send.as<float>() + call.scalars_first;
    // Encode compensates folded items. A bucket that is known to be void never reaches encode, so
    // here all its items are compensated.
    const auto& items = bucket.is_void ? call.items : call.unfolded;
    if (items.empty()) continue;
    const auto noted = plugin_call(bucket, "memory", call.memory->name(), "compensate");
    const uint64_t called = now_us();
    PENSTOCK_TRY(call_plugin(*call.memory, "compensate", items, [&] {
      return call.memory->table()->compensate(call.memory->self(), &call.place->exec(),
                                              &coding_.step, items.data(), items.size(), summed);
    }));
    note_call(bucket, *call.place, now_us() - called, part());
  }
  return {};
}

Status Compensate::begin(BucketRun& bucket) {
  if (coding_.nonfinite || bucket.is_void) PENSTOCK_TRY(copy_unfolded(coding_));
  // Under `strict` no memory takes a step in which gradients of some rank are not finite.
  if (!coding_.nonfinite && !(bucket.is_void && bucket.context.nonfinite_is_strict))
    PENSTOCK_TRY(call_memories(bucket));
  // Items that send nothing in this phase get a result of zero.
  for (ItemRun& item : coding_.items) {
    if (!item.encodes || !item.rounds.empty() || item.range.numel == 0) continue;
    PENSTOCK_TRY(
        item.place().clear(item.for_memory.out.data, item.range.numel * dtype_bytes(item.dtype)));
  }
  return {};
}

Status Encode::begin(BucketRun& bucket) {
  Coding& coding = *leg_.coding;
  for (auto& message : leg_.messages[round_]) PENSTOCK_TRY(message->before_encode(round_));
  for (CompressorCall& call : coding.encode_calls) {
    if (call.round != round_) continue;
    if (coding.nonfinite) {
      for (size_t position : call.positions) coding.items[position].own[round_].absent();
      continue;
    }
    PENSTOCK_TRY(
        take_time(bucket, call, part(), [&] { return call_encode(bucket, coding, call); }));
    if (const ItemRun* item = round_ == 0 ? found_not_finite(coding, call) : nullptr) {
      note_nonfinite(bucket.context, *item->gradient);
      PENSTOCK_TRY(undo(bucket, coding));
      continue;
    }
    for (size_t position : call.positions) {
      PENSTOCK_TRY(send_zeros(coding.items[position], round_));
      PENSTOCK_TRY(check_own(bucket, coding.items[position], round_));
    }
  }
  coding.rounds_encoded = round_ + 1;
  return {};
}

Status Decode::begin(BucketRun& bucket) {
  Coding& coding = *leg_.coding;
  for (auto& message : leg_.messages[round_]) PENSTOCK_TRY(message->before_decode());
  for (CompressorCall& call : coding.decode_calls)
    if (call.round == round_) PENSTOCK_TRY(call_decode(bucket, coding, call));
  coding.decoded = round_ + 1 == leg_.messages.size();
  return {};
}

}  // namespace penstock

// The end of a bucket's step: what was refused, taken, divided, given back.

#include "core/bucket/call_plugin.hpp"
#include "core/bucket/calls.hpp"
#include "core/tensor/elements.hpp"

namespace penstock {
namespace {

// taken = own - refused, both ascending by index.
void subtract_refused(ItemRun& item) {
  PayloadStorage& own = item.own.back();
  PayloadStorage& taken = item.taken;
  if (own.c()->kind == PENSTOCK_PAYLOAD_ABSENT) return taken.absent();
  const auto* own_index = static_cast<const uint32_t*>(own.section(0).data);
  const auto* own_value = static_cast<const float*>(own.section(1).data);
  const auto* refused_index = static_cast<const uint32_t*>(item.refused.section(0).data);
  const uint64_t n_refused =
      item.refused.c()->kind == PENSTOCK_PAYLOAD_ABSENT ? 0 : item.refused.section(0).count;
  auto* index = static_cast<uint32_t*>(taken.section(0).data);
  auto* value = static_cast<float*>(taken.section(1).data);
  uint64_t n = 0, r = 0;
  for (uint64_t i = 0; i < own.section(0).count; ++i) {
    while (r < n_refused && refused_index[r] < own_index[i]) ++r;
    if (r < n_refused && refused_index[r] == own_index[i]) continue;
    index[n] = own_index[i];
    value[n++] = own_value[i];
  }
  taken.c()->kind = PENSTOCK_PAYLOAD_SPARSE;
  taken.section(0).count = taken.section(1).count = n;
}

bool plain(PayloadStorage& payload) {
  if (payload.c()->kind == PENSTOCK_PAYLOAD_DENSE)
    return payload.section(0).dtype == PENSTOCK_FLOAT32;
  if (payload.c()->kind == PENSTOCK_PAYLOAD_SPARSE)
    return payload.section(0).dtype == PENSTOCK_UINT32 &&
           payload.section(1).dtype == PENSTOCK_FLOAT32;
  return payload.c()->kind == PENSTOCK_PAYLOAD_ABSENT;
}

// What only the compressor can read becomes a dense float32 payload.
Status decode_own(BucketRun& bucket, ItemRun& item, PayloadStorage& own) {
  if (item.returned.size() == 0) {  // rare, so made when first needed
    RoundNeed dense;
    dense.sections.push_back({item.piece.numel, PENSTOCK_ROLE_VALUES, PENSTOCK_FLOAT32, true});
    item.returned.shape(dense, int32_t(bucket.context.rank));
    item.returned_data = Buffer(item.piece.numel * sizeof(float));
    item.returned.section(0).data = item.returned_data.data();
  }
  item.returned.c()->kind = PENSTOCK_PAYLOAD_DENSE;
  item.returned.section(0).count = item.piece.numel;
  penstock_item temporary = item.for_compressor;
  temporary.out.data = item.returned_data.data();
  const penstock_item* items[] = {&temporary};
  const penstock_payload* payloads[] = {own.c()};
  const auto round = static_cast<uint32_t>(item.rounds.size() - 1);
  const auto noted = plugin_call(bucket, "compressor", item.compressor->name(), "decode");
  return call_plugin(*item.compressor, "decode of the own payload", items, [&] {
    return item.compressor->table()->decode(
        item.compressor->self(), &bucket.context.exec, &bucket.context.step, round, items, 1,
        payloads, 1, PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST | PENSTOCK_DECODE_OWN);
  });
}

// Calls body for the items of the call whose results are sums, not final (votes).
template <typename Body>
void each_sum(BucketRun& bucket, const MemoryCall& call, const Body& body) {
  for (const size_t position : call.positions)
    if (bucket.items[position].wants_mean()) body(bucket.items[position]);
}

// Pairs of which there are none: nothing was taken out of work, and yet the step had no effect.
const penstock_payload* no_pairs(const BucketRun& bucket, ItemRun& item) {
  if (item.returned.size() == 0) {  // rare, so made when first needed
    RoundNeed pairs;
    pairs.sections.push_back({0, PENSTOCK_ROLE_INDICES, PENSTOCK_UINT32, false});
    pairs.sections.push_back({0, PENSTOCK_ROLE_VALUES, PENSTOCK_FLOAT32, false});
    item.returned.shape(pairs, int32_t(bucket.context.rank));
  }
  item.returned.c()->kind = PENSTOCK_PAYLOAD_SPARSE;
  return item.returned.c();
}

Status call_give_back(BucketRun& bucket, MemoryCall& call) {
  if (!PENSTOCK_HAS_MEMBER(call.memory->table(), penstock_memory, give_back)) return {};
  const auto noted = plugin_call(bucket, "memory", call.memory->name(), "give_back");
  return call_plugin(*call.memory, "give_back", call.items, [&] {
    return call.memory->table()->give_back(call.memory->self(), &bucket.context.exec,
                                           &bucket.context.step, call.items.data(),
                                           call.items.size(), call.give_back.data());
  });
}

}  // namespace

Status keep_refused(BucketRun& bucket) {
  for (MemoryCall& call : bucket.memory_calls) {
    bool any = false;
    for (size_t i = 0; i < call.positions.size(); ++i) {
      ItemRun& item = bucket.items[call.positions[i]];
      if (item.on_composite && !item.rounds.empty()) {
        subtract_refused(item);
        any = true;
        call.give_back[i] = item.refused.c();
      } else {
        item.returned.absent();
        call.give_back[i] = item.returned.c();
      }
    }
    if (any) PENSTOCK_TRY(call_give_back(bucket, call));
  }
  return {};
}

Status settle(BucketRun& bucket) {
  const auto& context = bucket.context;
  {
    const TimedSpan span(context.timeline, "record", bucket.lane, context.step.index,
                         bucket.scheme);
    for (MemoryCall& call : bucket.memory_calls) {
      if (!PENSTOCK_HAS_MEMBER(call.memory->table(), penstock_memory, record)) continue;
      const auto noted = plugin_call(bucket, "memory", call.memory->name(), "record");
      PENSTOCK_TRY(call_plugin(*call.memory, "record", call.items, [&] {
        return call.memory->table()->record(call.memory->self(), &context.exec, &context.step,
                                            call.items.data(), call.items.size(),
                                            call.taken.data());
      }));
    }
  }
  const TimedSpan span(context.timeline, "finish", bucket.lane, context.step.index, bucket.scheme);
  for (MemoryCall& call : bucket.memory_calls) {
    // A memory that finishes sees the mean, whatever the frontend wants.
    const bool finishes = PENSTOCK_HAS_MEMBER(call.memory->table(), penstock_memory, finish);
    if (finishes || !context.result_is_sum)
      each_sum(bucket, call, [&](ItemRun& item) {
        divide(item.dtype, item.for_memory.out.data, item.piece.numel, context.world);
      });
    if (!finishes) continue;
    const auto noted = plugin_call(bucket, "memory", call.memory->name(), "finish");
    PENSTOCK_TRY(call_plugin(*call.memory, "finish", call.items, [&] {
      return call.memory->table()->finish(call.memory->self(), &context.exec, &context.step,
                                          call.items.data(), call.items.size());
    }));
    if (context.result_is_sum)
      each_sum(bucket, call, [&](ItemRun& item) {
        scale(item.dtype, item.for_memory.out.data, item.piece.numel, context.world);
      });
  }
  // Work in true units gives results in true units; the frontend expects those of its loss scale.
  for (ItemRun& item : bucket.items) {
    if (item.work_is != PENSTOCK_WORK_IS_GRAD)
      scale(item.dtype, item.for_memory.out.data, item.piece.numel, context.step.grad_scale);
    if (item.gradient->has_carry && item.carry_joins_result)
      add_carry(item, item.for_memory.out.data,
                context.step.grad_scale * (context.result_is_sum ? context.world : 1));
  }
  return {};
}

Status give_back_own(BucketRun& bucket) {
  for (MemoryCall& call : bucket.memory_calls) {
    bool any = false;
    for (size_t i = 0; i < call.positions.size(); ++i) {
      ItemRun& item = bucket.items[call.positions[i]];
      item.returned.absent();
      call.give_back[i] = item.returned.c();
      // A memory with state of another kind may have changed it at the end of the step.
      if (!item.keeps && !bucket.is_void && item.for_memory.n_states != 0) {
        any = true;
        call.give_back[i] = no_pairs(bucket, item);
      }
      // Only what the last round took out of work is missing there.
      if (!item.keeps || bucket.nonfinite || item.rounds.empty() ||
          item.rounds.size() > bucket.rounds_encoded)
        continue;
      any = true;
      const bool part = item.on_composite && !bucket.is_void;  // what was refused is back already
      PayloadStorage& own = part ? item.taken : item.own.back();
      if (plain(own)) {
        call.give_back[i] = own.c();
      } else {
        PENSTOCK_TRY(decode_own(bucket, item, own));
        call.give_back[i] = item.returned.c();
      }
    }
    if (any) PENSTOCK_TRY(call_give_back(bucket, call));
  }
  bucket.rounds_encoded = 0;
  return {};
}

Status give_up(BucketRun& bucket) {
  bucket.context.void_buckets.fetch_add(1, std::memory_order_relaxed);
  PENSTOCK_TRY(give_back_own(bucket));
  for (ItemRun& item : bucket.items)
    fill_nan(item.dtype, item.for_memory.out.data, item.piece.numel);
  return {};
}

}  // namespace penstock

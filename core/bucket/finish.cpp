#include "core/bucket/finish.hpp"

#include "core/bucket/call_plugin.hpp"
#include "core/bucket/coded.hpp"
#include "core/bucket/exchange.hpp"
#include "core/bucket/layout.hpp"
#include "core/bucket/load.hpp"
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

// Decodes a payload that only the compressor can read into a dense float32 payload.
Status decode_own(BucketRun& bucket, Coding& coding, ItemRun& item, PayloadStorage& own) {
  if (item.returned.size() == 0)  // if rarely needed, made at the first need
    PENSTOCK_TRY(make_returned(coding, item));
  item.returned.c()->kind = PENSTOCK_PAYLOAD_DENSE;
  item.returned.section(0).count = item.range.numel;
  penstock_item temporary = item.for_compressor;
  temporary.out.data = item.returned.section(0).data;
  const penstock_item* items[] = {&temporary};
  const penstock_payload* payloads[] = {own.c()};
  const auto round = static_cast<uint32_t>(item.rounds.size() - 1);
  const auto noted = plugin_call(bucket, "compressor", item.compressor->name(), "decode");
  return call_plugin(*item.compressor, "decode of the own payload", items, [&] {
    return item.compressor->table()->decode(
        item.compressor->self(), &item.place().exec(), &coding.step, round, items, 1, payloads, 1,
        PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST | PENSTOCK_DECODE_OWN);
  });
}

// Calls body for the items of the call whose results are sums, and not final results such as votes.
template <typename Body>
Status each_sum(Coding& coding, const MemoryCall& call, const Body& body) {
  for (const size_t position : call.positions)
    if (ItemRun& item = coding.items[position]; item.has_result() && item.wants_mean())
      PENSTOCK_TRY(body(item));
  return {};
}

// Decodes the taken payloads for memories that inspect sent values, independent of the compressor.
Status decode_taken(BucketRun& bucket, Coding& coding, MemoryCall& call) {
  for (size_t i = 0; i < call.positions.size(); ++i) {
    ItemRun& item = coding.items[call.positions[i]];
    if (!item.records_decoded || item.rounds.empty()) continue;
    PayloadStorage& taken = item.on_composite ? item.taken : item.own.back();
    const bool coded = !plain(taken);
    if (coded) PENSTOCK_TRY(decode_own(bucket, coding, item, taken));
    call.taken[i] = coded ? item.returned.c() : taken.c();
  }
  return {};
}

Status call_give_back(BucketRun& bucket, const Coding& coding, MemoryCall& call) {
  if (!PENSTOCK_HAS_MEMBER(call.memory->table(), penstock_memory, give_back)) return {};
  const auto noted = plugin_call(bucket, "memory", call.memory->name(), "give_back");
  return call_plugin(*call.memory, "give_back", call.items, [&] {
    return call.memory->table()->give_back(call.memory->self(), &call.place->exec(), &coding.step,
                                           call.items.data(), call.items.size(),
                                           call.give_back.data());
  });
}

Status keep_refused(BucketRun& bucket, Coding& coding) {
  for (MemoryCall& call : coding.memory_calls) {
    bool any = false;
    for (size_t i = 0; i < call.positions.size(); ++i) {
      ItemRun& item = coding.items[call.positions[i]];
      if (item.on_composite && !item.rounds.empty()) {
        subtract_refused(item);
        any = true;
        call.give_back[i] = item.refused.c();
      } else {
        item.returned.absent();
        call.give_back[i] = item.returned.c();
      }
    }
    if (any) PENSTOCK_TRY(call_give_back(bucket, coding, call));
  }
  return {};
}

Status record(BucketRun& bucket, Coding& coding) {
  for (MemoryCall& call : coding.memory_calls) {
    if (!PENSTOCK_HAS_MEMBER(call.memory->table(), penstock_memory, record)) continue;
    PENSTOCK_TRY(decode_taken(bucket, coding, call));
    const auto noted = plugin_call(bucket, "memory", call.memory->name(), "record");
    PENSTOCK_TRY(call_plugin(*call.memory, "record", call.items, [&] {
      return call.memory->table()->record(call.memory->self(), &call.place->exec(), &coding.step,
                                          call.items.data(), call.items.size(), call.taken.data());
    }));
  }
  return {};
}

// Multiplies a result in place.
Status multiply(const ItemRun& item, double factor) {
  return item.place().scale(item.dtype, item.for_memory.out.data, item.range.numel, factor);
}

Status divide(const ItemRun& item, uint32_t by) {
  return item.place().divide(item.dtype, item.for_memory.out.data, item.range.numel, by);
}

// Divides sums by the number of ranks in the set, even if fewer ranks took part in the leg.
Status finish(BucketRun& bucket, Coding& coding) {
  const auto& context = bucket.context;
  for (MemoryCall& call : coding.memory_calls) {
    // A memory with `finish` sees the mean, even if the frontend wants sums.
    const bool finishes = PENSTOCK_HAS_MEMBER(call.memory->table(), penstock_memory, finish);
    if (finishes || !context.result_is_sum)
      PENSTOCK_TRY(each_sum(coding, call, [&](ItemRun& item) {
        const bool is_mean = item.arrives_as_mean || item.decoded_as_mean;
        return is_mean ? Status() : divide(item, context.world);
      }));
    if (!finishes) continue;
    const auto noted = plugin_call(bucket, "memory", call.memory->name(), "finish");
    PENSTOCK_TRY(call_plugin(*call.memory, "finish", call.items, [&] {
      return call.memory->table()->finish(call.memory->self(), &call.place->exec(), &coding.step,
                                          call.items.data(), call.items.size());
    }));
    if (context.result_is_sum)
      PENSTOCK_TRY(
          each_sum(coding, call, [&](ItemRun& item) { return multiply(item, context.world); }));
  }
  return {};
}

// Whether the memory of a later coding holds the payload that an item has sent, so that the payload
// must not be given back here too.
bool is_kept_by_owner(const BucketRun& bucket, const ItemRun& item) {
  if (item.sum == nullptr || !item.sum->keeps) return false;
  const Coding& of_sums = *bucket.codings.back();
  if (of_sums.decoded) return true;
  return of_sums.has_begun && !of_sums.failed_owners[item.sum->owner];
}

// Gives the payloads that this rank sent in the last round back to its memories.
Status give_back_own(BucketRun& bucket, Coding& coding) {
  for (MemoryCall& call : coding.memory_calls) {
    bool any = false;
    for (size_t i = 0; i < call.positions.size(); ++i) {
      ItemRun& item = coding.items[call.positions[i]];
      item.returned.absent();
      call.give_back[i] = item.returned.c();
      // Only the last round takes its payload out of `work`, so only that payload is given back.
      if (!item.keeps || coding.nonfinite || item.rounds.empty() ||
          item.rounds.size() > coding.rounds_encoded || is_kept_by_owner(bucket, item))
        continue;
      any = true;
      PayloadStorage& own = item.own.back();
      if (plain(own)) {
        call.give_back[i] = own.c();
      } else {
        PENSTOCK_TRY(decode_own(bucket, coding, item, own));
        call.give_back[i] = item.returned.c();
      }
    }
    if (any) PENSTOCK_TRY(call_give_back(bucket, coding, call));
  }
  coding.rounds_encoded = 0;
  return {};
}

}  // namespace

bool has_to_record(const BucketRun& bucket) {
  const auto has = [](const MemoryCall& call) {
    return PENSTOCK_HAS_MEMBER(call.memory->table(), penstock_memory, record);
  };
  for (const auto& coding : bucket.codings) {
    const auto& items = coding->items;
    if (std::any_of(coding->memory_calls.begin(), coding->memory_calls.end(), has) ||
        std::any_of(items.begin(), items.end(), [](const auto& i) { return i.on_composite; }))
      return true;
  }
  return false;
}

Status RecordTaken::begin(BucketRun& bucket) {
  for (auto& coding : bucket.codings) {
    PENSTOCK_TRY(keep_refused(bucket, *coding));
    PENSTOCK_TRY(record(bucket, *coding));
  }
  return {};
}

Status Finish::begin(BucketRun& bucket) {
  const auto& context = bucket.context;
  // The owner's memories of sums do not finish: the result belongs to all ranks, so the memories of
  // the first coding finish it.
  Coding& coding = *bucket.codings.front();
  PENSTOCK_TRY(finish(bucket, coding));
  // Work in true units gives results in true units; the frontend expects results with its loss
  // scale.
  for (ItemRun& item : coding.items) {
    if (!item.encodes || !item.has_result()) continue;
    if (item.work_is != PENSTOCK_WORK_IS_GRAD || item.sum != nullptr)
      PENSTOCK_TRY(multiply(item, context.step.grad_scale));
    if (item.gradient->has_carry && item.of->carry_joins_result)
      add_carry(*item.gradient, item.range, item.dtype, item.for_memory.out.data,
                context.step.grad_scale * (context.result_is_sum ? context.world : 1));
  }
  return {};
}

Status GiveBack::begin(BucketRun& bucket) {
  bucket.context.void_buckets.fetch_add(1, std::memory_order_relaxed);
  bucket.each_message([&](uint32_t, uint32_t, MessageRun& message) {
    if (!message.sent) skip(bucket, message);
  });
  for (auto coding = bucket.codings.rbegin(); coding != bucket.codings.rend(); ++coding)
    PENSTOCK_TRY(give_back_own(bucket, **coding));
  return {};
}

}  // namespace penstock

#include "core/bucket/items.hpp"

#include "core/bucket/layout.hpp"
#include "core/fit/item.hpp"
#include "core/fit/needs.hpp"

#include <algorithm>
#include <map>

namespace penstock {
namespace {

PluginCall noted(const BucketRun& bucket, std::string_view kind, std::string_view plugin) {
  const SetContext& context = bucket.context;
  return PluginCall(context.planning_calls, kind, plugin, "plan", bucket.label, context.name,
                    context.step.index);
}

// Compensate and the encode of the first round become one sweep where the memory publishes a form
// that the compressor knows.
void fold_item(ItemRun& item, const penstock_memory_need& memory) {
  if (memory.form == PENSTOCK_FORM_NONE) return;
  const bool has_momentum = memory.form != PENSTOCK_FORM_AFFINE;
  if ((item.compressor->traits().folds & (1u << (memory.form - 1))) == 0 || item.rounds.empty() ||
      item.work_is != PENSTOCK_WORK_IS_STATE || item.n_scalars != 0 ||
      fold_encoder(*item.compressor) == nullptr)
    return;
  item.folded = true;
  item.fold.struct_size = sizeof item.fold;
  item.fold.form = memory.form;
  item.fold.beta = memory.beta;
  item.fold.gamma = memory.gamma;
  if (has_momentum) item.fold.momentum = item.memory_states[memory.momentum_state];
}

Status claim_states(ItemRun& item, StateStore& states, const penstock_compressor_need& compressor,
                    const penstock_memory_need& memory) {
  const auto claim = [&](const Plugin* plugin,
                         const penstock_state_declaration* const* declarations, uint64_t n,
                         std::vector<const penstock_tensor*>& views) -> Status {
    for (uint64_t s = 0; s < n; ++s) {
      const StateKey key{item.gradient->name, item.piece.first,
                         item.piece.numel,    0,
                         plugin->record.id,   std::string(view(declarations[s]->name))};
      PENSTOCK_ASSIGN(StateTensor * tensor, states.claim(key, *declarations[s]));
      views.push_back(&tensor->view);
    }
    return {};
  };
  PENSTOCK_TRY(claim(item.compressor->plugin(), compressor.states, compressor.n_states,
                     item.compressor_states));
  PENSTOCK_TRY(claim(item.memory->plugin(), memory.states, memory.n_states, item.memory_states));
  item.for_compressor.states = item.compressor_states.data();
  item.for_compressor.n_states = item.compressor_states.size();
  item.for_memory.states = item.memory_states.data();
  item.for_memory.n_states = item.memory_states.size();
  return {};
}

Status complete_item(BucketRun& bucket, ItemRun& item, StateStore& states,
                     const penstock_compressor_need& compressor,
                     const penstock_memory_need& memory) {
  item.rounds = copy_rounds(compressor);
  item.work_is = memory.work_is;
  item.n_scalars = memory.n_scalars;
  item.widened = item.dtype != item.gradient->dtype;
  item.keeps = memory.work_is == PENSTOCK_WORK_IS_STATE;
  item.carry_joins_result = (memory.flags & PENSTOCK_MEMORY_OWNS_MOMENTUM) != 0;
  item.for_memory = item.for_compressor;
  const uint32_t flags =
      (item.keeps ? uint32_t{PENSTOCK_ITEM_KEEP} : 0u) |
      ((compressor.flags & PENSTOCK_NEED_LOSSLESS) != 0 ? uint32_t{PENSTOCK_ITEM_LOSSLESS} : 0u);
  item.for_compressor.flags = item.for_memory.flags = flags;
  if (item.widened) item.wide = Buffer(item.piece.numel * sizeof(float));
  if (item.work_is == PENSTOCK_WORK_IS_SCRATCH)
    item.work = Buffer(item.piece.numel * dtype_bytes(item.dtype));
  PENSTOCK_TRY(claim_states(item, states, compressor, memory));
  if (item.work_is == PENSTOCK_WORK_IS_STATE)
    item.work_state = *item.memory_states[memory.work_state];
  for (penstock_item* c : {&item.for_compressor, &item.for_memory})
    if (item.work_is == PENSTOCK_WORK_IS_STATE) c->work = item.work_state;

  const bool one_dense_sum =
      item.rounds.size() == 1 && item.rounds[0].combine == PENSTOCK_COMBINE_SUM &&
      item.rounds[0].sections.size() == 1 && item.rounds[0].sections[0].dtype == item.dtype &&
      item.rounds[0].sections[0].capacity == item.piece.numel;
  const uint32_t plain = PENSTOCK_NEED_LOSSLESS | PENSTOCK_NEED_LINEAR;
  // What passes through is never void, so what is not finite would reach the memory's state or its
  // finish.
  const bool memory_is_idle = item.work_is == PENSTOCK_WORK_IS_GRAD && memory.n_states == 0 &&
                              item.n_scalars == 0 &&
                              !PENSTOCK_HAS_MEMBER(item.memory->table(), penstock_memory, finish);
  item.passes_through = one_dense_sum && (compressor.flags & plain) == plain &&
                        bucket.plan.pieces.size() == 1 && legs_of(bucket.plan.route).size() == 1 &&
                        !item.widened && memory_is_idle;
  fold_item(item, memory);
  item.on_composite =
      bucket.context.composite != nullptr && !item.rounds.empty() && item.rounds.back().sparse();
  // A composite reads from the payloads' capacity how many entries are wanted; here that is all.
  if (item.on_composite && compressor.scope == PENSTOCK_SCOPE_BUCKET)
    return failed_precondition(
        "collective \"{}\" lets as many sums survive as payloads have room for, but compressor "
        "\"{}\" chooses among all gradients of a bucket, and so has room for every entry: nothing "
        "would be dropped; let it choose within each gradient (topk: scope = \"item\"), or set "
        "collective = \"{}\" and remove transport",
        bucket.context.composite_name, item.compressor->name(), bucket.context.transport_name);
  return {};
}

// Asks both plugins for items that they have in common.
Status ask_for(BucketRun& bucket, const std::vector<ItemRun*>& items,
               CompressorNeeds& compressor_needs, MemoryNeeds& memory_needs) {
  const size_t n = items.size();
  CompressorInstance& compressor = *items.front()->compressor;
  MemoryInstance& memory = *items.front()->memory;
  Items pointers(n);
  // A second time with float32 where a memory keeps state for a gradient of another dtype.
  for (bool again = true; again;) {
    again = false;
    for (size_t i = 0; i < n; ++i) {
      describe_item(items[i]->for_compressor, *items[i]->gradient, items[i]->piece,
                    items[i]->dtype);
      pointers[i] = &items[i]->for_compressor;
    }
    {
      const auto call = noted(bucket, "compressor", compressor.name());
      PENSTOCK_TRY(ask_needs(compressor, bucket.plan.phase, bucket.context.world, pointers,
                             compressor_needs));
    }
    {
      const auto call = noted(bucket, "memory", memory.name());
      PENSTOCK_TRY(ask_needs(memory, pointers, compressor_needs, memory_needs));
    }
    for (size_t i = 0; i < n; ++i) {
      if (!needs_widening(memory_needs[i].c, items[i]->dtype)) continue;
      items[i]->dtype = PENSTOCK_FLOAT32;
      again = true;
    }
  }
  return {};
}

}  // namespace

Status plan_items(BucketRun& bucket, StateStore& states, ScratchNeed& scratch) {
  std::map<std::pair<CompressorInstance*, MemoryInstance*>, std::vector<ItemRun*>> groups;
  for (ItemRun& item : bucket.items) groups[{item.compressor, item.memory}].push_back(&item);
  std::map<CompressorInstance*, uint64_t> scratch_of;  // a call has items of every memory
  for (auto& [instances, items] : groups) {
    CompressorNeeds compressor_needs;
    MemoryNeeds memory_needs;
    PENSTOCK_TRY(ask_for(bucket, items, compressor_needs, memory_needs));
    for (size_t i = 0; i < items.size(); ++i) {
      PENSTOCK_TRY(
          complete_item(bucket, *items[i], states, compressor_needs[i].c, memory_needs[i].c));
      scratch_of[instances.first] += (compressor_needs[i].c.scratch_bytes + 63) / 64 * 64;
    }
  }
  for (const auto& [compressor, wanted] : scratch_of)
    if (wanted > scratch.bytes) scratch = {wanted, compressor->name(), bucket.items.size()};
  return {};
}

}  // namespace penstock

#include "core/bucket/items.hpp"

#include "core/bucket/layout.hpp"
#include "core/bucket/means.hpp"
#include "core/bucket/needs_text.hpp"
#include "core/comm/channel.hpp"
#include "core/fit/item.hpp"
#include "core/fit/needs.hpp"

#include <algorithm>
#include <map>

namespace penstock {
namespace {

// ---- codings ----

Coding& add_coding(BucketRun& bucket, const LegKind& kind, uint32_t leg) {
  Coding& coding = *bucket.codings.emplace_back(std::make_unique<Coding>());
  coding.links = &bucket.context.at(kind.level);
  coding.leg = leg;
  coding.to_owners = kind.pattern == PENSTOCK_ALL_TO_ALL;
  // The second coding of a route is the coding of sums; each owner has its sums alone.
  coding.of_sums = bucket.codings.size() > 1;
  coding.failed_owners.resize(coding.links->group.size());
  return coding;
}

ItemRun& add_item(Coding& coding, PieceRun& piece, const BoundScheme::Option& option,
                  const ElementRange& range, const ElementRange& extent) {
  ItemRun& item = coding.items.emplace_back();
  item.of = &piece;
  item.gradient = piece.gradient;
  item.range = range;
  item.extent = extent;
  item.compressor = option.compressor;
  item.memory = coding.of_sums ? option.owner_memory : option.memory;
  item.dtype = piece.dtype;
  item.takes_any = option.needs.takes_any;
  return item;
}

// Calls body for the part of a piece that each owner has.
template <typename Body>
void each_owned(const PieceRun& piece, const std::vector<OwnedRange>& owned, const Body& body) {
  const uint64_t first = piece.piece.first, end = first + piece.piece.numel;
  for (const OwnedRange& range : owned) {
    const uint64_t from = std::max(first, range.first);
    const uint64_t to = std::min(end, range.first + range.numel);
    if (from < to || piece.gradient->numel == 0)
      body(ElementRange{from, to - from}, ElementRange{range.first, range.numel}, range.owner);
  }
}

void add_host_sums(Coding& coding, PieceRun& piece, const BoundScheme::Option& option,
                   const std::vector<OwnedRange>& owned, uint32_t me) {
  each_owned(piece, owned, [&](ElementRange range, ElementRange extent, uint32_t owner) {
    ItemRun& item = add_item(coding, piece, option, range, extent);
    item.owner = owner;
    item.encodes = item.decodes = owner == me;
  });
}

// An item that is added on the way needs no owner for the sum of all ranks, because no rank has to
// read it before all ranks do. If each result is for its owner, which then owns whole gradients,
// the sum goes to the owner alone.
void add_sum(const BucketRun& bucket, Coding& parts, PieceRun& piece,
             const BoundScheme::Option& option, const std::vector<OwnedRange>& owned) {
  ItemRun& item = add_item(parts, piece, option, {piece.piece.first, piece.piece.numel},
                           {0, piece.gradient->numel});
  if (!bucket.ends_at_owners || !option.needs.compressor_facts.sums_for_one()) return;
  item.sum_is_owned = true;
  item.owner = owned.front().owner;
}

void add_shards(Coding& parts, Coding& sums, PieceRun& piece, const BoundScheme::Option& option,
                const std::vector<OwnedRange>& owned, uint32_t me) {
  const ElementRange all{0, piece.gradient->numel};
  each_owned(piece, owned, [&](ElementRange range, ElementRange extent, uint32_t owner) {
    ItemRun& part = add_item(parts, piece, option, range, all);
    ItemRun& sum = add_item(sums, piece, option, range, extent);
    part.owner = sum.owner = owner;
    part.decodes = sum.encodes = owner == me;
    part.sum = &sum;
    sum.sum_of = &part;
  });
}

// ---- needs ----

PluginCall noted(const BucketRun& bucket, std::string_view kind, std::string_view plugin) {
  const SetContext& context = bucket.context;
  return PluginCall(context.planning_calls, kind, plugin, "plan", bucket.label, context.name,
                    context.step.index);
}

// Makes compensate and the encode of the first round one sweep, if the memory publishes a form that
// the compressor knows.
void fold_item(ItemRun& item, const penstock_memory_need& memory) {
  if (memory.form == PENSTOCK_FORM_NONE) return;
  const bool has_momentum = memory.form != PENSTOCK_FORM_AFFINE;
  const FoldEncoder encoder = fold_encoder(*item.compressor);
  if ((item.compressor->traits().folds & (1u << (memory.form - 1))) == 0 || item.rounds.empty() ||
      item.work_is != PENSTOCK_WORK_IS_STATE || item.n_scalars != 0 || encoder.table == nullptr)
    return;
  item.folded = true;
  item.fold.struct_size = sizeof item.fold;
  item.fold.form = memory.form;
  item.fold.beta = memory.beta;
  item.fold.gamma = memory.gamma;
  if (has_momentum) item.fold.momentum = item.memory_states[memory.momentum_state];
  if (!encoder.reads_before) return;
  const size_t first = item.compressor_states.size();
  if (has_momentum) item.folded_momentum = item.states[first + memory.momentum_state];
  item.folds_generations = true;
  item.fold.work_before = item.work_state->before();
  if (has_momentum) item.fold.momentum_before = item.folded_momentum->before();
}

Status claim_states(ItemRun& item, const Coding& coding, StateStore& states,
                    const penstock_compressor_need& compressor,
                    const penstock_memory_need& memory) {
  const auto claim = [&](const Plugin* plugin,
                         const penstock_state_declaration* const* declarations, uint64_t n,
                         std::vector<const penstock_tensor*>& views) -> Status {
    for (uint64_t s = 0; s < n; ++s) {
      const StateKey key{item.gradient->name, item.range, coding.leg, plugin->record.id,
                         std::string(view(declarations[s]->name))};
      PENSTOCK_ASSIGN(StateView * state,
                      item.place().claim(states, key, item.extent, *declarations[s]));
      item.states.push_back(state);
      views.push_back(state->c());
    }
    return {};
  };
  PENSTOCK_TRY(claim(item.compressor->plugin(), compressor.states, compressor.n_states,
                     item.compressor_states));
  if (item.encodes)
    PENSTOCK_TRY(claim(item.memory->plugin(), memory.states, memory.n_states, item.memory_states));
  item.for_compressor.states = item.compressor_states.data();
  item.for_compressor.n_states = item.compressor_states.size();
  item.for_memory.states = item.memory_states.data();
  item.for_memory.n_states = item.memory_states.size();
  return {};
}

// Whether the item is a single dense sum of the gradient's values, of which no memory keeps
// anything.
bool is_plain(const BucketRun& bucket, const ItemRun& item,
              const penstock_compressor_need& compressor, const penstock_memory_need& memory) {
  const bool one_dense_sum =
      item.rounds.size() == 1 && item.rounds[0].combine == PENSTOCK_COMBINE_SUM &&
      item.rounds[0].sections.size() == 1 && item.rounds[0].sections[0].dtype == item.dtype &&
      item.rounds[0].sections[0].capacity == item.range.numel;
  const uint32_t plain = PENSTOCK_NEED_LOSSLESS | PENSTOCK_NEED_LINEAR;
  // An item that passes through is never void, so values that are not finite would reach the
  // memory's state or its `finish`.
  const bool memory_is_idle = item.work_is == PENSTOCK_WORK_IS_GRAD && memory.n_states == 0 &&
                              item.n_scalars == 0 && !item.records_decoded &&
                              !PENSTOCK_HAS_MEMBER(item.memory->table(), penstock_memory, finish);
  return one_dense_sum && (compressor.flags & plain) == plain &&
         legs_of(bucket.plan.route).size() == 1 && !item.of->widened && memory_is_idle;
}

// A composite reads the number of wanted entries from the capacity of payloads. With this scope the
// capacity is all entries.
Status check_composite(const BucketRun& bucket, const ItemRun& item,
                       const penstock_compressor_need& compressor) {
  if (!item.on_composite || compressor.scope != PENSTOCK_SCOPE_BUCKET) return {};
  return failed_precondition(
      "collective \"{}\" lets as many sums survive as payloads have room for, but compressor "
      "\"{}\" chooses among all gradients of a bucket, and so has room for every entry: nothing "
      "would be dropped; let it choose within each gradient (scope = \"item\"), or set "
      "collective = \"{}\" and remove transport",
      bucket.context.composite_name, item.compressor->name(), bucket.context.transport_name);
}

// Whether the link carries reduce-scatters. Messages from device to device bring sums to all ranks.
bool scatters(const Link& link) {
  return !link.is_announced && link.channel != nullptr &&
         (link.channel->traits.patterns & PENSTOCK_PATTERN_BIT(PENSTOCK_REDUCE_SCATTER)) != 0;
}

Status complete_item(BucketRun& bucket, const Coding& coding, ItemRun& item, StateStore& states,
                     const penstock_compressor_need& compressor,
                     const penstock_memory_need& memory) {
  if (!bucket.only_compensates) item.rounds = copy_rounds(compressor);
  item.work_is = memory.work_is;
  item.n_scalars = memory.n_scalars;
  item.keeps = memory.work_is == PENSTOCK_WORK_IS_STATE;
  item.records_decoded = (memory.flags & PENSTOCK_MEMORY_DECODED_RECORD) != 0;
  item.for_memory = item.for_compressor;
  const bool rest_follows = item.keeps || (memory.flags & PENSTOCK_MEMORY_ADDS_REST) != 0;
  const uint32_t flags =
      (item.keeps ? uint32_t{PENSTOCK_ITEM_KEEP} : 0u) |
      (rest_follows ? uint32_t{PENSTOCK_ITEM_REST_FOLLOWS} : 0u) |
      ((compressor.flags & PENSTOCK_NEED_LOSSLESS) != 0 ? uint32_t{PENSTOCK_ITEM_LOSSLESS} : 0u);
  for (penstock_item* c : {&item.for_compressor, &item.for_memory}) {
    c->flags = flags;
    c->leg = coding.leg;
  }
  const WorkPlace& place = item.place();
  place.place(item);
  item.passes_through = place.sends_from_here(place.link_of(coding, item, 0)) &&
                        is_plain(bucket, item, compressor, memory);
  item.sum_is_owned = item.sum_is_owned && scatters(place.link_of(coding, item, 0));
  if (item.sum_is_owned) item.decodes = item.owner == coding.links->group.rank();
  item.arrives_as_mean = arrives_as_mean(bucket, coding, item, compressor);
  item.compressor_wants = states_text(compressor.states, compressor.n_states);
  item.memory_wants = states_text(memory.states, memory.n_states);
  item.on_composite = coding.links->composite.channel != nullptr && !item.rounds.empty() &&
                      item.rounds.back().sparse();
  PENSTOCK_TRY(check_composite(bucket, item, compressor));
  if (!item.encodes && !item.decodes) return {};
  PENSTOCK_TRY(claim_states(item, coding, states, compressor, memory));
  if (!item.encodes) return {};
  if (item.work_is == PENSTOCK_WORK_IS_SCRATCH) {
    PENSTOCK_ASSIGN(item.work, place.make(item.range.numel * dtype_bytes(item.dtype)));
  }
  if (item.work_is == PENSTOCK_WORK_IS_STATE) {
    item.work_state = item.states[item.compressor_states.size() + memory.work_state];
    item.for_compressor.work = item.for_memory.work = *item.work_state->c();
  }
  fold_item(item, memory);
  return {};
}

// From this size on, two copies of a bucket cost more than a separate message for the flag.
constexpr uint64_t kManyBytes = 1u << 20;

// Plain gradients travel from their own storage if all gradients of the bucket are plain: one
// message, one sum.
void settle_what_passes_through(Coding& coding) {
  if (coding.items.empty()) return;
  const ItemRun& first = coding.items.front();
  const bool alone = coding.items.size() == 1;
  bool all = true;
  uint64_t bytes = 0;
  for (const ItemRun& item : coding.items) {
    all = all && item.passes_through && item.dtype == first.dtype &&
          &item.place() == &first.place() && item.rounds[0].reduction == first.rounds[0].reduction;
    bytes += item.range.numel * dtype_bytes(item.dtype);
  }
  all = all && (alone || bytes >= kManyBytes);
  for (ItemRun& item : coding.items) {
    item.passes_through = all;
    item.of->is_never_void = all && alone;
  }
}

// Asks a compressor and a memory for their needs for items that they share. If the memory keeps
// rounding errors, the compressor is told so and asked again.
Status ask_for(const BucketRun& bucket, const Coding& coding, const std::vector<ItemRun*>& items,
               CompressorNeeds& compressor_needs, MemoryNeeds& memory_needs) {
  CompressorInstance& compressor = *items.front()->compressor;
  MemoryInstance& memory = *items.front()->memory;
  Items pointers;
  for (ItemRun* item : items) {
    describe_item(item->for_compressor, *item->gradient,
                  {item->gradient->index, item->range.first, item->range.numel, 0}, item->dtype);
    pointers.push_back(&item->for_compressor);
  }
  const auto ask_both = [&]() -> Status {
    {
      const auto call = noted(bucket, "compressor", compressor.name());
      PENSTOCK_TRY(
          ask_needs(compressor, bucket.plan.phase, coding.n_ranks(), pointers, compressor_needs));
    }
    const auto call = noted(bucket, "memory", memory.name());
    return ask_needs(memory, pointers, compressor_needs, memory_needs);
  };
  PENSTOCK_TRY(ask_both());
  bool any_keeps = false;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!keeps_rounding(memory_needs[i].c, items[i]->takes_any)) continue;
    items[i]->for_compressor.flags |= PENSTOCK_ITEM_KEEP;
    any_keeps = true;
  }
  return any_keeps ? ask_both() : Status();
}

}  // namespace

void make_codings(BucketRun& bucket, const BoundScheme& bound_scheme) {
  const auto kinds = legs_of(bucket.plan.route);
  for (uint32_t leg = 0; leg < kinds.size(); ++leg)
    if (kinds[leg].encodes) add_coding(bucket, kinds[leg], leg);
  Coding& coding = *bucket.codings.front();
  const uint32_t route = bucket.plan.route;
  const uint32_t me = bucket.context.at(level_of_owners(route)).group.rank();
  for (PieceRun& piece : bucket.pieces) {
    const BoundScheme::Option& option =
        bound_scheme.options(piece.piece.gradient)[piece.piece.choice];
    const auto owned = [&]() -> const std::vector<OwnedRange>& {
      return bound_scheme.ownership(route)[piece.piece.gradient];
    };
    if (adds_in_hosts(route))
      add_host_sums(coding, piece, option, owned(), me);
    else if (encodes_for_owners(route) && !option.needs.compressor_facts.gathers)
      add_sum(bucket, coding, piece, option, owned());
    else if (encodes_for_owners(route))
      add_shards(coding, *bucket.codings.back(), piece, option, owned(), me);
    else
      add_item(coding, piece, option, {piece.piece.first, piece.piece.numel},
               {0, piece.gradient->numel});
  }
  if (!bucket.ends_early()) return;
  bucket.codings.resize(1);
  for (ItemRun& item : coding.items) item.sum = nullptr;
}

Status plan_items(BucketRun& bucket, Coding& coding, StateStore& states, ScratchNeed& scratch) {
  std::map<std::pair<CompressorInstance*, MemoryInstance*>, std::vector<ItemRun*>> groups;
  for (ItemRun& item : coding.items) groups[{item.compressor, item.memory}].push_back(&item);
  std::map<CompressorInstance*, uint64_t> scratch_of;  // a call has items of every memory
  for (auto& [instances, items] : groups) {
    CompressorNeeds compressor_needs;
    MemoryNeeds memory_needs;
    PENSTOCK_TRY(ask_for(bucket, coding, items, compressor_needs, memory_needs));
    for (size_t i = 0; i < items.size(); ++i) {
      PENSTOCK_TRY(complete_item(bucket, coding, *items[i], states, compressor_needs[i].c,
                                 memory_needs[i].c));
      scratch_of[instances.first] += (compressor_needs[i].c.scratch_bytes + 63) / 64 * 64;
    }
  }
  settle_what_passes_through(coding);
  for (const auto& [compressor, wanted] : scratch_of)
    if (wanted > scratch.bytes) scratch = {wanted, compressor->name(), coding.items.size()};
  return {};
}

}  // namespace penstock

#include "core/fit/facts.hpp"

#include "core/plugin/instances.hpp"

#include <algorithm>

namespace penstock {

namespace {

// Whether the payloads are index and value pairs, which need no check in host memory.
bool are_pairs(const penstock_round& round) {
  return round.combine == PENSTOCK_COMBINE_GATHER && round.n_sections == 2 &&
         round.sections[0]->role == PENSTOCK_ROLE_INDICES &&
         round.sections[0]->dtype == PENSTOCK_UINT32 &&
         round.sections[1]->role == PENSTOCK_ROLE_VALUES;
}

// Whether a composite can add the payloads: only the compressor can add values of another dtype.
bool is_sparse(const penstock_round& round) {
  return are_pairs(round) && round.sections[1]->dtype == PENSTOCK_FLOAT32;
}

}  // namespace

void merge_phase(CompressorFacts& facts, const CompressorFacts& next) {
  facts.need_flags &= next.need_flags;
  facts.n_rounds = std::max(facts.n_rounds, next.n_rounds);
  facts.sums |= next.sums;
  facts.gathers |= next.gathers;
  facts.gathers_sparse |= next.gathers_sparse;
  facts.gathers_pairs |= next.gathers_pairs;
  facts.same_bits |= next.same_bits;
  facts.final_result |= next.final_result;
  facts.replicates |= next.replicates;
}

CompressorFacts compressor_facts(std::string name, const penstock_compressor_traits& traits,
                                 const penstock_compressor_need* const* needs, uint64_t n) {
  CompressorFacts facts;
  facts.name = std::move(name);
  facts.device_types = traits.device_types;
  facts.traits = traits.flags;
  facts.need_flags = n > 0 ? needs[0]->flags : 0;
  for (uint64_t phase = 0; phase < n; ++phase) {
    const penstock_compressor_need& need = *needs[phase];
    CompressorFacts next;
    next.need_flags = need.flags;
    next.n_rounds = static_cast<uint32_t>(need.n_rounds);
    for (uint64_t i = 0; i < need.n_rounds; ++i) {
      const penstock_round& round = *need.rounds[i];
      const bool is_last = i + 1 == need.n_rounds;
      next.sums |= round.combine == PENSTOCK_COMBINE_SUM;
      next.gathers |= round.combine == PENSTOCK_COMBINE_GATHER;
      next.same_bits |= (round.flags & PENSTOCK_ROUND_SAME_BITS) != 0;
      next.gathers_sparse |=
          is_last && round.combine == PENSTOCK_COMBINE_GATHER && is_sparse(round);
      next.gathers_pairs |= are_pairs(round);
      next.final_result |= is_last && round.result == PENSTOCK_RESULT_FINAL;
    }
    for (uint64_t i = 0; i < need.n_states; ++i)
      next.replicates |= need.states[i]->state_class == PENSTOCK_STATE_REPLICATED;
    merge_phase(facts, next);
  }
  return facts;
}

MemoryFacts memory_facts(std::string name, const penstock_memory& table,
                         const penstock_memory_need& need) {
  MemoryFacts facts;
  facts.name = std::move(name);
  facts.owns_momentum = (need.flags & PENSTOCK_MEMORY_OWNS_MOMENTUM) != 0;
  facts.has_give_back = PENSTOCK_HAS_MEMBER(&table, penstock_memory, give_back);
  facts.finishes = PENSTOCK_HAS_MEMBER(&table, penstock_memory, finish);
  facts.adds_rest = (need.flags & PENSTOCK_MEMORY_ADDS_REST) != 0;
  facts.shifts = (need.flags & PENSTOCK_MEMORY_SHIFTS) != 0;
  facts.records = PENSTOCK_HAS_MEMBER(&table, penstock_memory, record);
  facts.works_in_scratch = need.work_is == PENSTOCK_WORK_IS_SCRATCH;
  for (uint64_t i = 0; i < need.n_states; ++i) {
    facts.keeps |= need.states[i]->state_class == PENSTOCK_STATE_MASS;
    facts.same_bits |= need.states[i]->state_class == PENSTOCK_STATE_REPLICATED;
  }
  return facts;
}

CollectiveFacts collective_facts(std::string name, const penstock_collective_traits& traits) {
  return {std::move(name),         traits.flags, traits.patterns, traits.device_types,
          device_patterns(traits), traits.dtypes};
}

SchedulerFacts scheduler_facts(std::string name, const penstock_scheduler_traits& traits) {
  return {std::move(name), traits.routes, traits.flags};
}

}  // namespace penstock

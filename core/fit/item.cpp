#include "core/fit/item.hpp"

#include "core/config/defaults.hpp"
#include "core/fit/needs.hpp"
#include "core/tensor/dtype.hpp"

#include <algorithm>

namespace penstock {

TemplateItem::TemplateItem(const DeclaredGradient& gradient, const planning::Piece& piece)
    : gradient_(gradient) {
  describe_item(c_, gradient, piece, gradient.dtype);
  for (penstock_tensor* tensor : {&c_.grad, &c_.work, &c_.out}) {
    tensor->device_type = gradient.lies_on.device_type;
    tensor->device_id = gradient.lies_on.device_id;
  }
}

void TemplateItem::set_dtype(uint32_t dtype) {
  c_.grad.dtype = c_.work.dtype = c_.out.dtype = dtype;
}

void describe_item(penstock_item& item, const DeclaredGradient& gradient,
                   const planning::Piece& piece, uint32_t dtype) {
  const bool whole = piece.first == 0 && piece.numel == gradient.numel;
  item.struct_size = sizeof item;
  item.name = str(gradient.name);
  item.gradient = gradient.index;
  item.first = piece.first;
  item.numel = piece.numel;
  // A part keeps the rows of its matrix if the cuts do not divide rows.
  uint64_t cols = 1;
  if (gradient.shape.size() >= 2 && gradient.numel > 0)
    cols = gradient.numel / static_cast<uint64_t>(gradient.shape[0]);
  const bool has_rows = piece.first % cols == 0 && piece.numel % cols == 0;
  item.cols = has_rows ? cols : 1;
  item.rows = piece.numel / item.cols;
  item.n_dims = whole ? gradient.shape.size() : 1;
  item.shape = gradient.shape.data();
  for (penstock_tensor* tensor : {&item.grad, &item.work, &item.out}) {
    tensor->struct_size = sizeof *tensor;
    tensor->shape = gradient.shape.data();
    tensor->n_dims = gradient.shape.size();
    tensor->numel = piece.numel;
    tensor->dtype = dtype;
    tensor->device_type = PENSTOCK_DEVICE_CPU;
  }
}

Result<uint32_t> working_dtype(const DeclaredGradient& gradient,
                               const CompressorInstance& compressor) {
  const uint64_t taken = compressor.traits().dtypes;
  if ((taken & PENSTOCK_DTYPE_BIT(gradient.dtype)) != 0) return gradient.dtype;
  const bool stageable = gradient.dtype == PENSTOCK_FLOAT16 || gradient.dtype == PENSTOCK_BFLOAT16;
  if (stageable && (taken & PENSTOCK_DTYPE_BIT(PENSTOCK_FLOAT32)) != 0)
    return uint32_t{PENSTOCK_FLOAT32};
  return invalid_argument(
      "gradient '{}' is {}, which compressor '{}' does not take; add a rule with compressor = "
      "\"{}\" for it",
      gradient.name, dtype_name(gradient.dtype), compressor.name(), defaults::kCompressor);
}

bool needs_widening(const penstock_memory_need& memory, uint32_t dtype) {
  return dtype != PENSTOCK_FLOAT32 &&
         (memory.work_is != PENSTOCK_WORK_IS_GRAD || memory.n_states != 0 || memory.n_scalars != 0);
}

std::vector<RoundNeed> copy_rounds(const penstock_compressor_need& need) {
  std::vector<RoundNeed> rounds;
  for (uint64_t r = 0; r < need.n_rounds; ++r) {
    const penstock_round& c = *need.rounds[r];
    RoundNeed& round = rounds.emplace_back();
    round.combine = c.combine;
    round.result = c.result;
    round.reduction = c.reduction != 0 ? c.reduction : uint32_t{PENSTOCK_REDUCE_SUM};
    round.flags = c.flags;
    for (uint64_t s = 0; s < c.n_sections; ++s) {
      const penstock_section_bound& bound = *c.sections[s];
      round.sections.push_back(
          {bound.capacity, bound.role, bound.dtype, (bound.flags & PENSTOCK_SECTION_EXACT) != 0});
    }
  }
  return rounds;
}

namespace {

// Adds the need of a further phase to the needs of an item.
void add_phase(ItemNeeds& needs, const DeclaredGradient& gradient,
               const CompressorInstance& compressor, const penstock_compressor_need& need) {
  uint64_t bytes = 0, coded = 0, uncoded = 0;  // cannot overflow: such a need is refused
  const std::vector<RoundNeed> rounds = copy_rounds(need);
  needs.planned += planned_bytes(rounds, gradient.bytes(), gradient.numel);
  for (const RoundNeed& round : rounds) {
    const bool is_sum = round.combine == PENSTOCK_COMBINE_SUM;
    needs.combine = round.combine;
    if (!is_sum && (round.flags & PENSTOCK_ROUND_ALL_PAYLOADS) != 0) needs.decodes_slices = false;
    for (const SectionNeed& section : round.sections) {
      bytes += section.bytes();
      coded += is_sum ? section.bytes() : gathered_bytes(section, gradient.numel);
      if (!is_sum && section.is_coded(gradient.numel)) uncoded += section.bytes();
    }
  }
  const bool is_first = needs.phase_bytes.empty();
  needs.phase_bytes.push_back(bytes);
  needs.coded_phase_bytes.push_back(coded);
  needs.most_room = std::max(needs.most_room, bytes + uncoded);
  needs.part_alignment = need.part_alignment;
  const penstock_compressor_need* one[] = {&need};
  const CompressorFacts facts = compressor_facts(compressor.name(), compressor.traits(), one, 1);
  if (is_first)
    needs.compressor_facts = facts;
  else
    merge_phase(needs.compressor_facts, facts);
}

}  // namespace

bool takes_any_payload(const Scheme& scheme, bool connects_devices) {
  const bool goes_directly = connects_devices && scheme.route == PENSTOCK_ROUTE_FLAT;
  return scheme.transport.empty() && !goes_directly;
}

Result<ItemNeeds> plan_template(TemplateItem& item, CompressorInstance& compressor,
                                MemoryInstance& memory, uint32_t world, bool takes_any,
                                CallSlot* calls, std::string_view set) {
  ItemNeeds needs;
  needs.takes_any = takes_any;
  const std::string_view where = item.gradient().name;
  const auto ask_compressor = [&](uint32_t phase, const Items& items, CompressorNeeds& asked) {
    const PluginCall noted(calls, "compressor", compressor.name(), "plan", where, set);
    return ask_needs(compressor, phase, world, items, asked);
  };
  const auto ask_memory = [&](const Items& items, const CompressorNeeds& given,
                              MemoryNeeds& asked) {
    const PluginCall noted(calls, "memory", memory.name(), "plan", where, set);
    return ask_needs(memory, items, given, asked);
  };
  PENSTOCK_ASSIGN(needs.dtype, working_dtype(item.gradient(), compressor));
  for (;;) {
    item.set_dtype(needs.dtype);
    needs.phase_bytes.clear();
    needs.coded_phase_bytes.clear();
    needs.most_room = 0;
    needs.decodes_slices = true;
    needs.planned = {};
    const Items items = {item.c()};
    CompressorNeeds first, later;
    MemoryNeeds memory_needs;
    PENSTOCK_TRY(ask_compressor(0, items, first));
    PENSTOCK_TRY(ask_memory(items, first, memory_needs));
    if (keeps_rounding(memory_needs[0].c, takes_any) &&
        (item.c()->flags & PENSTOCK_ITEM_KEEP) == 0) {
      item.c()->flags |= PENSTOCK_ITEM_KEEP;
      continue;
    }
    needs.memory_facts = memory_facts(memory.name(), *memory.table(), memory_needs[0].c);
    const uint32_t period = std::max(first[0].c.period, 1u);
    for (uint32_t phase = 0; phase < period; ++phase) {
      if (phase > 0) {
        PENSTOCK_TRY(ask_compressor(phase, items, later));
        PENSTOCK_TRY(check_phases(compressor, *item.c(), first[0], phase, later[0]));
      }
      add_phase(needs, item.gradient(), compressor, phase == 0 ? first[0].c : later[0].c);
    }
    needs.planned = needs.planned.times(1.0 / period);
    if (!needs_widening(memory_needs[0].c, needs.dtype)) return needs;
    if (item.gradient().dtype == PENSTOCK_FLOAT64)
      return invalid_argument(
          "gradient '{}' is float64, which memory '{}' does not keep; add a rule with memory = "
          "\"{}\" for it",
          item.gradient().name, memory.name(), defaults::kMemory);
    needs.dtype = PENSTOCK_FLOAT32;
  }
}

}  // namespace penstock

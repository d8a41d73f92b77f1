#include "core/fit/needs.hpp"

#include <penstock/validate.hpp>

namespace penstock {

namespace {

// The core allocates the need, so its size is the core's size for plugins of every ABI.
template <typename T>
Status check_own_size(const T& need) {
  if (need.struct_size == sizeof need) return {};
  return internal("plan changed the struct_size of its need from {} to {}; it must not",
                  sizeof need, need.struct_size);
}

Status fault_status(const std::optional<sdk::Fault>& fault) {
  return fault ? internal("{}", fault->text()) : Status();
}

template <typename Need>
Status adopt_states(Need& need, StateDeclarations& states) {
  PENSTOCK_TRY(states.take(need.states, need.n_states));
  need.states = states.data();
  return {};
}

// Returns "compressor 'sparse' (compressor/topk)".
template <typename Table>
std::string who(const Instance<Table>& instance) {
  const std::string name =
      fmt::format("{} '{}'", kind_name(TableTraits<Table>::kKind), instance.name());
  if (instance.plugin() == nullptr) return name;
  return fmt::format("{} ({})", name, instance.plugin()->record.id);
}

std::string plan_for(const penstock_item& item) {
  return fmt::format("plan for gradient '{}'", view(item.name));
}

}  // namespace

Status StateDeclarations::take(const penstock_state_declaration* const* theirs, uint64_t n) {
  names_.clear();
  copies_.assign(n, {});
  pointers_.clear();
  for (uint64_t i = 0; i < n; ++i) {
    PENSTOCK_TRY(take_struct(theirs[i], "penstock_state_declaration", copies_[i]));
    copies_[i].name = str(names_.emplace_back(view(copies_[i].name)));
    pointers_.push_back(&copies_[i]);
  }
  return {};
}

Status CompressorNeed::take_round(const penstock_round* theirs) {
  penstock_round& round = rounds_.emplace_back();
  PENSTOCK_TRY(take_struct(theirs, "penstock_round", round));
  auto& pointers = section_pointers_.emplace_back();
  for (uint64_t i = 0; i < round.n_sections; ++i) {
    penstock_section_bound& section = sections_.emplace_back();
    PENSTOCK_TRY(take_struct(round.sections[i], "penstock_section_bound", section));
    pointers.push_back(&section);
  }
  round.sections = pointers.data();
  round_pointers_.push_back(&round);
  return {};
}

Status CompressorNeed::adopt() {
  PENSTOCK_TRY(check_own_size(c));
  PENSTOCK_TRY(fault_status(sdk::fault_in(c)));
  PENSTOCK_TRY(adopt_states(c, states_));
  for (uint64_t i = 0; i < c.n_rounds; ++i) PENSTOCK_TRY(take_round(c.rounds[i]));
  c.rounds = round_pointers_.data();
  return {};
}

Status MemoryNeed::adopt(const penstock_memory& table, const penstock_item& item) {
  PENSTOCK_TRY(check_own_size(c));
  PENSTOCK_TRY(fault_status(sdk::fault_in(c, table, item)));
  return adopt_states(c, states_);
}

Status CollectiveNeed::adopt(std::string_view collective) {
  const auto take_all = [&]() -> Status {
    PENSTOCK_TRY(check_own_size(c));
    PENSTOCK_TRY(fault_status(sdk::fault_in(c)));
    return adopt_states(c, states_);
  };
  return take_all().with_context(fmt::format("collective '{}': plan", collective));
}

Status ask_needs(const CompressorInstance& compressor, uint32_t phase, uint32_t world,
                 const Items& items, CompressorNeeds& needs) {
  needs.clear();
  std::vector<penstock_compressor_need*> pointers;
  for (size_t i = 0; i < items.size(); ++i) pointers.push_back(&needs.emplace_back().c);
  PENSTOCK_TRY(from_c(compressor->plan(compressor.self(), phase, world, items.data(), items.size(),
                                       pointers.data()))
                   .with_context(fmt::format("compressor '{}'", compressor.name())));
  for (size_t i = 0; i < items.size(); ++i) {
    const Status status = needs[i].adopt();
    if (!status.ok())
      return status.with_context(
          fmt::format("{}: {} in phase {}", who(compressor), plan_for(*items[i]), phase));
  }
  return {};
}

Status ask_needs(const MemoryInstance& memory, const Items& items,
                 const CompressorNeeds& compressor_needs, MemoryNeeds& needs) {
  needs.clear();
  std::vector<const penstock_compressor_need*> asked;
  std::vector<penstock_memory_need*> pointers;
  for (const CompressorNeed& need : compressor_needs) asked.push_back(&need.c);
  for (size_t i = 0; i < items.size(); ++i) pointers.push_back(&needs.emplace_back().c);
  PENSTOCK_TRY(
      from_c(memory->plan(memory.self(), items.data(), items.size(), asked.data(), pointers.data()))
          .with_context(fmt::format("memory '{}'", memory.name())));
  for (size_t i = 0; i < items.size(); ++i) {
    const Status status = needs[i].adopt(*memory.table(), *items[i]);
    if (!status.ok())
      return status.with_context(fmt::format("{}: {}", who(memory), plan_for(*items[i])));
  }
  return {};
}

Status check_phases(const CompressorInstance& compressor, const penstock_item& item,
                    const CompressorNeed& first, uint32_t phase, const CompressorNeed& later) {
  const Status status = fault_status(sdk::fault_between_phases(first.c, later.c));
  if (status.ok()) return status;
  return status.with_context(
      fmt::format("{}: {} in phase {}", who(compressor), plan_for(item), phase));
}

}  // namespace penstock

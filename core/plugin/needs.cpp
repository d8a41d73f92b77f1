#include "core/plugin/needs.hpp"

namespace penstock {

namespace {

// The need itself is a struct of ours, whatever the plugin's age.
template <typename T>
Status check_own_size(const T& need) {
  if (need.struct_size == sizeof need) return {};
  return internal("plan changed the struct_size of its need from {} to {}; it must not",
                  sizeof need, need.struct_size);
}

template <typename Need>
Status adopt_states(Need& need, StateDeclarations& states) {
  PENSTOCK_TRY(check_own_size(need));
  PENSTOCK_TRY(states.take(need.states, need.n_states));
  need.states = states.data();
  return {};
}

}  // namespace

Status StateDeclarations::take(const penstock_state_declaration* const* theirs, uint64_t n) {
  copies_.assign(n, {});
  pointers_.clear();
  for (uint64_t i = 0; i < n; ++i) {
    PENSTOCK_TRY(take_struct(theirs[i], "penstock_state_declaration", copies_[i]));
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

Status CompressorNeed::adopt(std::string_view compressor) {
  const auto take_all = [&]() -> Status {
    PENSTOCK_TRY(adopt_states(c, states_));
    for (uint64_t i = 0; i < c.n_rounds; ++i) PENSTOCK_TRY(take_round(c.rounds[i]));
    c.rounds = round_pointers_.data();
    return {};
  };
  return take_all().with_context(fmt::format("compressor '{}': plan", compressor));
}

Status MemoryNeed::adopt(std::string_view memory) {
  return adopt_states(c, states_).with_context(fmt::format("memory '{}': plan", memory));
}

Status CollectiveNeed::adopt(std::string_view collective) {
  return adopt_states(c, states_).with_context(fmt::format("collective '{}': plan", collective));
}

}  // namespace penstock

// See need.hpp.
#include <penstock/arguments.hpp>
#include <penstock/validate.hpp>
#include <testing/need.hpp>

namespace penstock::test {
namespace {

void accept(penstock_status* status) {
  const Outcome outcome = take(status);
  if (!outcome.ok()) throw std::runtime_error(outcome.message);
}

// "compressor 'sparse' (compressor/sparse): plan for gradient 'weight'".
std::string plan_of(const LoadedPlugin& plugin, const penstock_item& item) {
  const std::string id = plugin.record->id;
  const auto slash = std::min(id.find('/'), id.size());
  return sdk::text(id.substr(0, slash), " '", id.substr(std::min(slash + 1, id.size())), "' (", id,
                   "): plan for gradient '", sdk::view(item.name), "'");
}

// Copies a plugin's struct of any ABI version to a struct of this version.
template <typename T>
T copied(const T& theirs, const char* name) {
  promise(sdk::tail_is_zero(&theirs), name, " has a field beyond byte ", sizeof(T),
          " set, which ABI ", PENSTOCK_ABI_MAJOR, ".", PENSTOCK_ABI_MINOR,
          " does not know; use a newer Penstock, or do not use the feature that needs this field");
  T ours{};
  std::memcpy(&ours, &theirs, std::min<uint64_t>(theirs.struct_size, sizeof(T)));
  ours.struct_size = sizeof ours;
  return ours;
}

void copy_states(const penstock_state_declaration* const* states, uint64_t n, PlannedStates& copy) {
  for (uint64_t s = 0; s < n; ++s) {
    penstock_state_declaration& state =
        copy.states.emplace_back(copied(*states[s], "penstock_state_declaration"));
    state.name = sdk::str(copy.names.emplace_back(sdk::view(state.name)));
  }
}

// The need is a struct of this ABI version, for a plugin of any version.
template <typename Need>
void promise_own_size(const Need& need, const std::string& whose) {
  promise(need.struct_size == sizeof need, whose,
          ": plan changed the struct_size of its need from ", sizeof need, " to ", need.struct_size,
          "; it must not");
}

void promise_no_fault(const std::optional<sdk::Fault>& fault, const std::string& whose) {
  if (fault) promise(false, whose, ": ", fault->text());
}

PlannedNeed copy_need(const penstock_compressor_need& need) {
  PlannedNeed copy;
  for (uint64_t r = 0; r < need.n_rounds; ++r) {
    PlannedRound& round = copy.rounds.emplace_back();
    round.c = copied(*need.rounds[r], "penstock_round");
    for (uint64_t s = 0; s < round.c.n_sections; ++s)
      round.sections.push_back(copied(*round.c.sections[s], "penstock_section_bound"));
  }
  copy_states(need.states, need.n_states, copy);
  copy.scratch_bytes = need.scratch_bytes;
  copy.part_alignment = need.part_alignment;
  copy.period = std::max(need.period, 1u);
  copy.scope = need.scope;
  copy.flags = need.flags;
  return copy;
}

// Copied needs as C structs, for a memory's plan.
class ListedNeeds {
 public:
  explicit ListedNeeds(const std::vector<PlannedNeed>& planned) {
    for (const PlannedNeed& from : planned) {
      penstock_compressor_need& need = needs_.emplace_back();
      need.struct_size = sizeof need;
      need.period = from.period;
      need.scope = from.scope;
      need.flags = from.flags;
      need.n_rounds = from.rounds.size();
      need.rounds = list(from.rounds);
      pointers_.push_back(&need);
    }
  }
  const penstock_compressor_need* const* data() const { return pointers_.data(); }

 private:
  const penstock_round* const* list(const std::vector<PlannedRound>& planned) {
    auto& of_need = round_pointers_.emplace_back();
    for (const PlannedRound& from : planned) {
      auto& of_round = section_pointers_.emplace_back();
      for (const penstock_section_bound& bound : from.sections) of_round.push_back(&bound);
      rounds_.push_back(from.c);
      rounds_.back().sections = of_round.data();
      of_need.push_back(&rounds_.back());
    }
    return of_need.data();
  }
  std::deque<penstock_compressor_need> needs_;
  std::deque<penstock_round> rounds_;
  std::deque<std::vector<const penstock_section_bound*>> section_pointers_;
  std::deque<std::vector<const penstock_round*>> round_pointers_;
  std::vector<const penstock_compressor_need*> pointers_;
};

}  // namespace

std::vector<PlannedNeed> ask_needs(const CompressorInstance& compressor, const LoadedPlugin& plugin,
                                   uint32_t phase, uint32_t world, const ItemViews& items) {
  std::vector<penstock_compressor_need> needs(items.size());
  std::vector<penstock_compressor_need*> pointers;
  for (auto& need : needs) {
    need.struct_size = sizeof need;
    pointers.push_back(&need);
  }
  accept(compressor.table().plan(compressor.self(), phase, world, items.data(), items.size(),
                                 pointers.data()));
  std::vector<PlannedNeed> copies;
  copies.reserve(needs.size());  // state names point into the copies
  for (uint64_t i = 0; i < needs.size(); ++i) {
    const std::string whose = sdk::text(plan_of(plugin, *items[i]), " in phase ", phase);
    promise_own_size(needs[i], whose);
    promise_no_fault(sdk::fault_in(needs[i]), whose);
    copies.push_back(copy_need(needs[i]));
    promise(copies[i].period == copies[0].period, whose, ": period is ", copies[i].period,
            ", expected ", copies[0].period, " as for gradient '", sdk::view(items[0]->name), "'");
  }
  return copies;
}

std::vector<PlannedMemory> ask_needs(const MemoryInstance& memory, const LoadedPlugin& plugin,
                                     const ItemViews& items,
                                     const std::vector<PlannedNeed>& compressor_needs) {
  const ListedNeeds listed(compressor_needs);
  std::vector<PlannedMemory> copies(items.size());
  std::vector<penstock_memory_need*> pointers;
  for (auto& copy : copies) {
    copy.c.struct_size = sizeof copy.c;
    pointers.push_back(&copy.c);
  }
  accept(memory.table().plan(memory.self(), items.data(), items.size(), listed.data(),
                             pointers.data()));
  for (uint64_t i = 0; i < items.size(); ++i) {
    const std::string whose = plan_of(plugin, *items[i]);
    promise_own_size(copies[i].c, whose);
    promise_no_fault(sdk::fault_in(copies[i].c, memory.table(), *items[i]), whose);
    copy_states(copies[i].c.states, copies[i].c.n_states, copies[i]);
    copies[i].c.states = nullptr;  // it belonged to the plugin until its next plan call
  }
  return copies;
}

}  // namespace penstock::test

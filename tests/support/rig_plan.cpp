// How the rig plans: items with shapes, needs of every phase, states, the room for scratch.
#include <deque>
#include <penstock/views.hpp>
#include <stdexcept>
#include <support/rig.hpp>

namespace penstock::test {
namespace {

penstock_tensor float_tensor(const Shape& shape, uint64_t numel) {
  penstock_tensor tensor{};
  tensor.struct_size = sizeof tensor;
  tensor.shape = shape.data();
  tensor.n_dims = shape.size();
  tensor.numel = numel;
  tensor.dtype = PENSTOCK_FLOAT32;
  tensor.device_type = PENSTOCK_DEVICE_CPU;
  return tensor;
}

void throw_on(penstock_status* status) {
  const Outcome outcome = take(status);
  if (!outcome.ok()) throw std::runtime_error(outcome.message);
}

// Copied rounds as the C structs want them.
struct ListedRounds {
  std::deque<penstock_round> rounds;
  std::deque<std::vector<const penstock_section_bound*>> sections;
  std::vector<const penstock_round*> pointers;
  explicit ListedRounds(const std::vector<PlannedRound>& planned) {
    for (const PlannedRound& from : planned) {
      auto& of_round = sections.emplace_back();
      for (const penstock_section_bound& bound : from.sections) of_round.push_back(&bound);
      rounds.push_back(from.c);
      rounds.back().sections = of_round.data();
      pointers.push_back(&rounds.back());
    }
  }
};

PlannedNeed copy_need(const penstock_compressor_need& need) {
  PlannedNeed copy;
  for (uint64_t r = 0; r < need.n_rounds; ++r) {
    PlannedRound& round = copy.rounds.emplace_back();
    round.c = *need.rounds[r];
    for (uint64_t s = 0; s < round.c.n_sections; ++s)
      round.sections.push_back(*round.c.sections[s]);
  }
  for (uint64_t s = 0; s < need.n_states; ++s) copy.states.push_back(*need.states[s]);
  for (penstock_state_declaration& state : copy.states) {
    copy.names.emplace_back(state.name.data, state.name.size);
    state.name = {copy.names.back().data(), copy.names.back().size()};
  }
  copy.scratch_bytes = need.scratch_bytes;
  copy.part_alignment = need.part_alignment;
  copy.period = need.period;
  copy.scope = need.scope;
  copy.flags = need.flags;
  return copy;
}

}  // namespace

CompressorRig::CompressorRig(const RigSettings& settings, const std::vector<Shape>& shapes,
                             const LoadedPlugin& compressor,
                             const OptionSettings& compressor_options,
                             std::optional<LoadedPlugin> memory,
                             const OptionSettings& memory_options)
    : settings_(settings), shapes_(shapes), ranks_(settings.ranks) {
  for (uint32_t r = 0; r < settings_.ranks; ++r) {
    Rank& rank = ranks_[r];
    rank.compressor = std::make_unique<CompressorInstance>(compressor.compressor(),
                                                           *compressor.module, compressor_options);
    if (memory)
      rank.memory =
          std::make_unique<MemoryInstance>(memory->memory(), *memory->module, memory_options);
    make_items(rank);
    plan_compressor(rank, r == 0);
    plan_memory(rank, r == 0);
    make_states(rank);
  }
  uint64_t scratch_bytes = 0;
  for (const auto& phase : needs_) {
    uint64_t sum = 0;
    for (const PlannedNeed& need : phase) sum += need.scratch_bytes;
    scratch_bytes = std::max(scratch_bytes, sum);
  }
  scratch_ = Guarded<unsigned char>(scratch_bytes, true);
}

void CompressorRig::make_items(Rank& rank) const {
  for (uint64_t i = 0; i < shapes_.size(); ++i) {
    RigItem& item = *rank.items.emplace_back(std::make_unique<RigItem>());
    item.name = "gradient" + std::to_string(i);
    item.shape = shapes_[i];
    uint64_t numel = 1;
    for (int64_t size : item.shape) numel *= static_cast<uint64_t>(size);
    item.grad = Guarded<float>(numel);
    item.scratch_work = Guarded<float>(numel);
    item.c.struct_size = sizeof item.c;
    item.c.name = {item.name.data(), item.name.size()};
    item.c.gradient = i;
    item.c.numel = numel;
    const bool matrix = item.shape.size() >= 2 && item.shape[0] > 0;
    item.c.rows = matrix ? static_cast<uint64_t>(item.shape[0]) : numel;
    item.c.cols = matrix ? numel / item.c.rows : 1;
    item.c.n_dims = item.shape.size();
    item.c.shape = item.shape.data();
    item.c.grad = item.c.work = item.c.out = float_tensor(item.shape, numel);
  }
}

void CompressorRig::plan_compressor(Rank& rank, bool first) {
  std::vector<const penstock_item*> items;
  for (const auto& item : rank.items) items.push_back(&item->c);
  uint32_t period = 1;
  for (uint32_t phase = 0; phase < period; ++phase) {
    std::vector<penstock_compressor_need> needs(items.size());
    std::vector<penstock_compressor_need*> pointers;
    for (auto& need : needs) {
      need.struct_size = sizeof need;
      pointers.push_back(&need);
    }
    throw_on(rank.compressor->table().plan(rank.compressor->self(), phase, settings_.ranks,
                                           items.data(), items.size(), pointers.data()));
    for (const auto& need : needs) period = std::max(period, need.period);
    if (!first) continue;
    auto& copies = needs_.emplace_back();
    copies.reserve(needs.size());  // state names point into the copies
    for (const auto& need : needs) copies.push_back(copy_need(need));
  }
}

void CompressorRig::plan_memory(Rank& rank, bool first) {
  const uint64_t n = rank.items.size();
  std::vector<const penstock_item*> items;
  std::vector<penstock_compressor_need> compressor_needs(n);
  std::vector<const penstock_compressor_need*> compressor_pointers;
  std::deque<ListedRounds> rounds;
  std::vector<penstock_memory_need> needs(n);
  std::vector<penstock_memory_need*> pointers;
  for (uint64_t i = 0; i < n; ++i) {
    const PlannedNeed& planned = needs_[0][i];
    if ((planned.flags & PENSTOCK_NEED_LOSSLESS) != 0)
      rank.items[i]->c.flags |= PENSTOCK_ITEM_LOSSLESS;
    items.push_back(&rank.items[i]->c);
    compressor_needs[i].struct_size = sizeof compressor_needs[i];
    compressor_needs[i].period = planned.period;
    compressor_needs[i].scope = planned.scope;
    compressor_needs[i].flags = planned.flags;
    const ListedRounds& listed = rounds.emplace_back(planned.rounds);
    compressor_needs[i].rounds = listed.pointers.data();
    compressor_needs[i].n_rounds = listed.pointers.size();
    compressor_pointers.push_back(&compressor_needs[i]);
    needs[i].struct_size = sizeof needs[i];
    pointers.push_back(&needs[i]);
  }
  if (rank.memory)
    throw_on(rank.memory->table().plan(rank.memory->self(), items.data(), n,
                                       compressor_pointers.data(), pointers.data()));
  if (!first) return;
  memory_needs_ = needs;
  for (auto& need : memory_needs_) {
    auto& states = memory_states_.emplace_back();
    for (uint64_t s = 0; s < need.n_states; ++s) {
      states.push_back(*need.states[s]);
      const penstock_str name = states.back().name;
      const std::string& kept = memory_state_names_.emplace_back(name.data, name.size);
      states.back().name = {kept.data(), kept.size()};
    }
    need.states = nullptr;  // it belonged to the plugin until its next plan call
  }
}

void CompressorRig::add_states(const std::vector<const penstock_state_declaration*>& declarations,
                               std::deque<State>& states,
                               std::vector<const penstock_tensor*>& pointers) {
  for (const penstock_state_declaration* declared : declarations) {
    State& state = states.emplace_back();
    state.name.assign(declared->name.data, declared->name.size);
    state.state_class = declared->state_class;
    const uint64_t numel = declared->rows * declared->cols;
    state.bytes = Guarded<unsigned char>(numel * sdk::dtype_bytes(declared->dtype));
    state.shape[0] = static_cast<int64_t>(declared->rows);
    state.shape[1] = static_cast<int64_t>(declared->cols);
    state.tensor.struct_size = sizeof state.tensor;
    state.tensor.data = state.bytes.data();
    state.tensor.shape = state.shape;
    state.tensor.n_dims = 2;
    state.tensor.numel = numel;
    state.tensor.dtype = declared->dtype;
    state.tensor.device_type = PENSTOCK_DEVICE_CPU;
    pointers.push_back(&state.tensor);
  }
}

void CompressorRig::make_states(Rank& rank) {
  for (uint64_t i = 0; i < rank.items.size(); ++i) {
    RigItem& item = *rank.items[i];
    std::vector<const penstock_state_declaration*> declared;
    for (const auto& state : needs_[0][i].states) declared.push_back(&state);
    add_states(declared, item.compressor_states, item.compressor_pointers);
    declared.clear();
    for (const auto& state : memory_states_[i]) declared.push_back(&state);
    add_states(declared, item.memory_states, item.memory_pointers);

    item.c.grad.data = item.c.out.data = item.grad.data();  // the result replaces the gradient
    const penstock_memory_need& need = memory_needs_[i];
    switch (need.work_is) {
      case PENSTOCK_WORK_IS_GRAD:
        item.c.work.data = item.grad.data();
        break;
      case PENSTOCK_WORK_IS_STATE: {
        const penstock_tensor& state = item.memory_states.at(need.work_state).tensor;
        if (state.numel != item.c.numel || state.dtype != PENSTOCK_FLOAT32)
          throw std::runtime_error("the state that is to be work has another size or dtype");
        item.c.work.data = state.data;
        break;
      }
      default:
        item.c.work.data = item.scratch_work.data();
    }
    if (keeps(i) || settings_.keep) item.c.flags |= PENSTOCK_ITEM_KEEP;
    item.for_compressor = item.for_memory = item.c;
    item.for_compressor.states = item.compressor_pointers.data();
    item.for_compressor.n_states = item.compressor_pointers.size();
    item.for_memory.states = item.memory_pointers.data();
    item.for_memory.n_states = item.memory_pointers.size();
  }
}

bool CompressorRig::keeps(uint64_t item) const {
  return memory_needs_[item].work_is == PENSTOCK_WORK_IS_STATE;
}

}  // namespace penstock::test

// The planning of the rig: items with shapes, needs of every phase, states, scratch.
#include <penstock/validate.hpp>
#include <stdexcept>
#include <testing/rig.hpp>

namespace penstock::test {

namespace {

// A simulated memory of this form. Its numbers are not powers of two, so that the order of
// operations shows in the bits.
PlannedMemory stand_in(uint32_t form, uint64_t numel) {
  PlannedMemory need;
  need.c.struct_size = sizeof need.c;
  need.c.form = form;
  need.c.beta = 0.7;
  need.c.gamma = 1.3;
  need.c.work_is = PENSTOCK_WORK_IS_STATE;
  const auto add = [&](const char* name) {
    penstock_state_declaration state{};
    state.struct_size = sizeof state;
    state.name = sdk::str(need.names.emplace_back(name));
    state.rows = numel;
    state.cols = 1;
    state.dtype = PENSTOCK_FLOAT32;
    state.state_class = PENSTOCK_STATE_MASS;
    need.states.push_back(state);
  };
  add("kept");
  if (form == PENSTOCK_FORM_AFFINE) return need;
  add("momentum");
  need.c.momentum_state = 1;
  return need;
}

}  // namespace

CompressorRig::CompressorRig(const RigSettings& settings, const std::vector<Shape>& shapes,
                             const LoadedPlugin& compressor,
                             const OptionSettings& compressor_options,
                             std::optional<LoadedPlugin> memory,
                             const OptionSettings& memory_options)
    : settings_(settings),
      shapes_(shapes),
      compressor_plugin_(compressor),
      memory_plugin_(memory),
      ranks_(settings.ranks) {
  for (uint32_t r = 0; r < settings_.ranks; ++r) {
    Rank& rank = ranks_[r];
    rank.compressor = std::make_unique<CompressorInstance>(compressor, compressor_options);
    if (memory) rank.memory = std::make_unique<MemoryInstance>(*memory, memory_options);
    for (uint64_t i = 0; i < shapes_.size(); ++i)
      rank.items.emplace_back(shapes_[i], "gradient" + std::to_string(i), i);
    plan_compressor(rank, r == 0);
    plan_memory(rank, r == 0);
    if (tell_what_is_kept(rank)) plan_compressor(rank, r == 0);
    lay_out(rank);
  }
  uint64_t scratch_bytes = 0;
  for (const auto& phase : needs_) {
    uint64_t sum = 0;
    for (const PlannedNeed& need : phase) sum += need.scratch_bytes;
    scratch_bytes = std::max(scratch_bytes, sum);
  }
  scratch_ = Guarded<unsigned char>(scratch_bytes, true);
}

void CompressorRig::plan_compressor(Rank& rank, bool first) {
  ItemViews items;
  for (SimulatedItem& item : rank.items) items.push_back(&item.c);
  uint32_t period = 1;
  if (first) needs_.clear();
  for (uint32_t phase = 0; phase < period; ++phase) {
    about_to(sdk::text("plan of phase ", phase, ": ",
                       shapes_.empty() ? "nothing" : text_of(shapes_[0]) + " floats"));
    std::vector<PlannedNeed> needs =
        ask_needs(*rank.compressor, compressor_plugin_, phase, settings_.ranks, items);
    if (phase == 0 && !needs.empty()) period = needs[0].period;
    if (first) needs_.push_back(std::move(needs));
  }
}

void CompressorRig::plan_memory(Rank& rank, bool first) {
  ItemViews items;
  for (uint64_t i = 0; i < rank.items.size(); ++i) {
    if ((needs_[0][i].flags & PENSTOCK_NEED_LOSSLESS) != 0)
      rank.items[i].c.flags |= PENSTOCK_ITEM_LOSSLESS;
    items.push_back(&rank.items[i].c);
  }
  std::vector<PlannedMemory> needs(items.size());
  if (rank.memory)
    needs = ask_needs(*rank.memory, *memory_plugin_, items, needs_[0]);
  else if (settings_.form != PENSTOCK_FORM_NONE)
    for (uint64_t i = 0; i < items.size(); ++i)
      needs[i] = stand_in(settings_.form, items[i]->numel);
  if (first) memory_needs_ = std::move(needs);
}

// Tells the compressor that a memory keeps rounding errors, as the runtime does in plan
// (compressor.h). Returns whether there is such an item.
bool CompressorRig::tell_what_is_kept(Rank& rank) const {
  bool any = false;
  for (uint64_t i = 0; i < rank.items.size(); ++i) {
    if (!keeps(i)) continue;
    rank.items[i].c.flags |= PENSTOCK_ITEM_KEEP;
    any = true;
  }
  return any;
}

void CompressorRig::lay_out(Rank& rank) {
  for (uint64_t i = 0; i < rank.items.size(); ++i) {
    SimulatedItem& item = rank.items[i];
    item.compressor_states.add(needs_[0][i]);
    item.memory_states.add(memory_needs_[i]);
    const bool own_work = settings_.keep && memory_needs_[i].c.work_is == PENSTOCK_WORK_IS_GRAD;
    item.lay_out(memory_needs_[i].c, own_work);
  }
}

bool CompressorRig::keeps(uint64_t item) const {
  return memory_needs_[item].c.work_is == PENSTOCK_WORK_IS_STATE;
}

}  // namespace penstock::test

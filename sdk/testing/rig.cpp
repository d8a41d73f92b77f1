// A step of the rig from gradient to result, and the accessors of the rig; see rig.hpp.
#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <testing/rig.hpp>

namespace penstock::test {

penstock_step CompressorRig::step_facts(uint32_t rank, const StepSettings& settings) const {
  penstock_step step{};
  step.struct_size = sizeof step;
  step.index = index_;
  step.seed = settings_.seed;
  step.grad_scale = settings.grad_scale;
  step.phase = static_cast<uint32_t>(index_ % needs_.size());
  step.rank = rank;
  step.world = settings_.ranks;
  return step;
}

penstock_exec CompressorRig::exec() {
  scratch_.scribble();
  penstock_exec exec = cpu_exec();
  exec.scratch = scratch_.data();
  exec.scratch_bytes = scratch_.size();
  return exec;
}

// The core has two generations of each state and drops the second one for a forgotten step; the rig
// restores copies.
Tensors CompressorRig::step(const RankTensors& gradients, const StepSettings& settings) {
  const States before = settings.forgotten ? states() : States();
  Tensors mean = take_step(gradients, settings);
  if (settings.forgotten)
    put_back(before);
  else
    ++index_;
  return mean;
}

CompressorRig::States CompressorRig::states() const {
  States all;
  for (const Rank& rank : ranks_)
    for (const SimulatedItem& item : rank.items) {
      all.push_back(item.compressor_states.copy());
      all.push_back(item.memory_states.copy());
    }
  return all;
}

void CompressorRig::put_back(const States& states) {
  size_t next = 0;
  for (Rank& rank : ranks_)
    for (SimulatedItem& item : rank.items) {
      item.compressor_states.put_back(states[next++]);
      item.memory_states.put_back(states[next++]);
    }
}

Tensors CompressorRig::take_step(const RankTensors& gradients, const StepSettings& settings) {
  std::vector<bool> sends(settings_.ranks, true);
  for (uint32_t rank : settings.joined) sends[rank] = false;
  const bool is_void = settings.void_rank.has_value();
  if (is_void) sends[*settings.void_rank] = false;
  load_gradients(gradients, settings);
  compensate(settings, sends);

  uint64_t n_rounds = 0;
  for (const PlannedNeed& need : needs()) n_rounds = std::max(n_rounds, need.rounds.size());
  for (Rank& rank : ranks_)
    for (SimulatedItem& item : rank.items) item.own.reset();
  for (uint32_t r = 0; r < n_rounds; ++r) {
    ItemList items;  // an item takes part in its planned number of rounds
    for (uint64_t i = 0; i < n_items(); ++i)
      if (needs()[i].rounds.size() > r) items.push_back(i);
    round(r, items, settings, sends, is_void);
  }
  if (settings_.check_sums && !is_void) promise_sums(sends);
  finish(settings, sends);
  Tensors mean = results(settings);
  promise_intact("the step");
  promise_replicated();
  return mean;
}

bool CompressorRig::is_last(uint64_t item, uint32_t round) const {
  return round + 1 == needs()[item].rounds.size();
}

std::string CompressorRig::where(uint32_t rank, uint64_t item) const {
  const bool kept = settings_.keep || keeps(item);
  return sdk::text("gradient", item, " of ", text_of(shapes_[item]), " floats in step ", index_,
                   " on rank ", rank, " of ", settings_.ranks,
                   kept ? ", with a memory" : ", without a memory");
}

void CompressorRig::about_to_call(const char* call, uint32_t rank, const ItemList& items) const {
  if (items.empty()) return;
  about_to(sdk::text(call, ": ", where(rank, items.front()),
                     items.size() > 1 ? ", and those after it" : ""));
}

void CompressorRig::load_gradients(const RankTensors& gradients, const StepSettings& settings) {
  for (uint32_t r = 0; r < settings_.ranks; ++r)
    for (uint64_t i = 0; i < n_items(); ++i) {
      SimulatedItem& item = ranks_[r].items[i];
      const std::vector<float>& from = gradients.at(r).at(i);
      if (from.size() != item.grad.size())
        throw std::invalid_argument("a gradient has another size than its item");
      for (uint64_t e = 0; e < from.size(); ++e)
        item.grad[e] = from[e] * static_cast<float>(settings.grad_scale);
      item.for_compressor.learning_rate = item.for_memory.learning_rate = settings.learning_rate;
      item.scratch_work.scribble();
      if (memory_needs_[i].c.work_is == PENSTOCK_WORK_IS_GRAD && settings_.keep)
        std::copy(item.grad.begin(), item.grad.end(), item.scratch_work.begin());
    }
}

void CompressorRig::compensate(const StepSettings& settings, const std::vector<bool>& sends) {
  ItemList apart;  // from encode
  for (uint64_t i = 0; i < n_items(); ++i)
    if (!settings_.fold || memory_needs_[i].c.form == PENSTOCK_FORM_NONE) apart.push_back(i);
  if (apart.empty()) return;
  if (!ranks_[0].memory) return compensate_as_stand_in(settings, sends);
  const uint64_t n_scalars = memory_needs_[0].c.n_scalars;
  std::vector<float> summed(apart.size() * n_scalars, 0.0f);
  for (int pass = 0; pass < 2; ++pass) {  // all ranks measure before any rank compensates
    for (uint32_t r = 0; r < settings_.ranks; ++r) {
      if (!sends[r]) continue;
      const MemoryInstance& memory = *ranks_[r].memory;
      ItemViews items;
      for (const uint64_t i : apart) items.push_back(memory_item(r, i));
      const penstock_step step = step_facts(r, settings);
      const penstock_exec call = cpu_exec();  // without scratch
      if (pass == 1) {
        about_to_call("compensate", r, apart);
        require(memory.compensate(call, step, items, n_scalars == 0 ? nullptr : summed.data()),
                "compensate");
      } else if (n_scalars > 0) {
        Guarded<float> scalars(summed.size());
        about_to_call("measure", r, apart);
        require(memory.measure(call, step, items, scalars.data()), "measure");
        promise(scalars.intact(), "measure wrote beyond ", n_scalars, " scalars for each item");
        for (uint64_t s = 0; s < scalars.size(); ++s) summed[s] += scalars[s];
      }
    }
  }
}

// Divides means and lets memories record and finish; for a void bucket, they get back the payloads.
void CompressorRig::finish(const StepSettings& settings, const std::vector<bool>& sends) {
  const bool is_void = settings.void_rank.has_value();
  for (uint32_t r = 0; r < settings_.ranks; ++r) {
    Rank& rank = ranks_[r];
    const penstock_step step = step_facts(r, settings);
    const penstock_exec call = exec();
    for (uint64_t i = 0; i < n_items(); ++i) {
      SimulatedItem& item = rank.items[i];
      if (is_void) {
        std::fill(item.grad.begin(), item.grad.end(), std::numeric_limits<float>::quiet_NaN());
        continue;
      }
      if (needs()[i].rounds.empty()) {
        std::fill(item.grad.begin(), item.grad.end(), 0.0f);
        continue;
      }
      if (needs()[i].rounds.back().c.result != PENSTOCK_RESULT_FINAL && !settings_.mean_by_decode)
        for (float& value : item.grad) value /= static_cast<float>(settings_.ranks);
      if (!rank.memory) continue;
      if (sends[r] && item.own) record(r, i, settings);
      require(rank.memory->finish(call, step, {&item.for_memory}), "finish");
    }
    if (is_void) give_back_all(r, settings);
  }
}

// Whether a payload holds pairs or values in float32, which any plugin can read.
static bool readable(OwnedPayload& payload) {
  const uint32_t kind = payload.c()->kind;
  bool is = kind == PENSTOCK_PAYLOAD_SPARSE || kind == PENSTOCK_PAYLOAD_DENSE;
  for (uint64_t s = 0; s < payload.n_sections(); ++s)
    if (payload.section(s).role == PENSTOCK_ROLE_VALUES)
      is &= payload.section(s).dtype == PENSTOCK_FLOAT32;
  return is || payload.is_absent();
}

void CompressorRig::record(uint32_t rank, uint64_t i, const StepSettings& settings) {
  SimulatedItem& item = ranks_[rank].items[i];
  const bool decodes = (memory_needs_[i].c.flags & PENSTOCK_MEMORY_DECODED_RECORD) != 0;
  PayloadPointer decoded;
  if (decodes && !readable(*item.own))  // its values were decoded under OWN
    decoded = dense_payload(item.sent, static_cast<int32_t>(rank));
  const penstock_payload* taken = decoded ? decoded->c() : item.own->c();
  require(
      ranks_[rank].memory->record(exec(), step_facts(rank, settings), {&item.for_memory}, {taken}),
      "record");
}

void CompressorRig::give_back_all(uint32_t rank, const StepSettings& settings) {
  for (uint64_t i = 0; i < n_items(); ++i) {
    SimulatedItem& item = ranks_[rank].items[i];
    if (!keeps(i) || !item.own) continue;
    if (readable(*item.own))
      give_back(rank, i, *item.own, settings);
    else  // its values were decoded under OWN
      give_back(rank, i, *dense_payload(item.sent, static_cast<int32_t>(rank)), settings);
  }
}

void CompressorRig::give_back(uint32_t rank, uint64_t item, OwnedPayload& payload,
                              const StepSettings& settings) {
  const MemoryInstance& memory = *ranks_[rank].memory;
  promise(memory.has(&penstock_memory::give_back), "a memory that keeps has no give_back");
  require(memory.give_back(exec(), step_facts(rank, settings), {memory_item(rank, item)},
                           {payload.c()}),
          "give_back");
}

Tensors CompressorRig::results(const StepSettings& settings) {
  Tensors mean;
  for (uint64_t i = 0; i < n_items(); ++i) {
    const std::vector<float> first = ranks_[0].items[i].grad.copy();
    for (uint32_t r = 1; r < settings_.ranks; ++r)
      promise(
          same_bytes(first.data(), ranks_[r].items[i].grad.data(), first.size() * sizeof(float)),
          where(r, i), " has another result than on rank 0, from the same payloads");
    mean.push_back(first);
    // Work in true units gives a result in true units; the gradient itself is still scaled.
    if (memory_needs_[i].c.work_is == PENSTOCK_WORK_IS_GRAD)
      for (float& value : mean.back()) value /= static_cast<float>(settings.grad_scale);
  }
  return mean;
}

void CompressorRig::promise_intact(const char* call) const {
  promise(scratch_.intact(), call, " wrote beyond the ", scratch_.size(),
          " bytes of scratch that were planned: scratch was overrun in step ", index_);
  for (const Rank& rank : ranks_)
    for (const SimulatedItem& item : rank.items) item.promise_intact(call);
}

void CompressorRig::promise_replicated() const {
  const auto compare = [&](const StateTensors& ours, const StateTensors& first, uint32_t rank,
                           uint64_t item) {
    for (uint64_t s = 0; s < ours.size(); ++s)
      if (ours[s].state_class == PENSTOCK_STATE_REPLICATED)
        promise(same_bytes(ours[s].bytes.data(), first[s].bytes.data(), ours[s].bytes.size()),
                "replicated state '", ours[s].name, "' differs between ranks 0 and ", rank, ": ",
                where(rank, item));
  };
  for (uint32_t r = 1; r < settings_.ranks; ++r)
    for (uint64_t i = 0; i < n_items(); ++i) {
      const SimulatedItem &ours = ranks_[r].items[i], &first = ranks_[0].items[i];
      compare(ours.compressor_states, first.compressor_states, r, i);
      compare(ours.memory_states, first.memory_states, r, i);
    }
}

// Checks the sums on rank 0; the other ranks have equal bits.
void CompressorRig::promise_sums(const std::vector<bool>& sends) const {
  for (uint64_t i = 0; i < n_items(); ++i) {
    const std::vector<PlannedRound>& rounds = needs()[i].rounds;
    if (rounds.empty()) continue;
    const bool lossless = (needs()[i].flags & PENSTOCK_NEED_LOSSLESS) != 0;
    double magnitude = 0;
    for (uint32_t r = 0; r < settings_.ranks; ++r)
      for (const float value : ranks_[r].items[i].before)
        magnitude = std::max(magnitude, std::fabs(double{value}));
    const SimulatedItem& first = ranks_[0].items[i];
    for (uint64_t e = 0; e < first.grad.size(); ++e) {
      const double out = first.grad[e];
      promise(std::isfinite(out), "out[", e, "] is not finite: ", where(0, i));
      if (rounds.back().c.result == PENSTOCK_RESULT_FINAL) continue;
      double expected = 0;
      for (uint32_t r = 0; r < settings_.ranks; ++r) {
        const SimulatedItem& item = ranks_[r].items[i];
        if (sends[r]) expected += lossless ? item.before[e] : item.sent[e];
      }
      if (!(std::fabs(out - expected) <= tolerance(i, magnitude)))
        promise(false, "out[", e, "] is ", out, ", the payloads of all ranks add up to ", expected,
                ": ", where(0, i));
    }
  }
}

std::vector<float> CompressorRig::drain(uint32_t rank, uint64_t item) {
  SimulatedItem& of = ranks_[rank].items[item];
  std::fill(of.grad.begin(), of.grad.end(), 0.0f);
  require(ranks_[rank].memory->drain(exec(), {&of.for_memory}), "drain");
  return of.grad.copy();
}

std::vector<float> CompressorRig::work(uint32_t rank, uint64_t item) const {
  return ranks_[rank].items[item].work_copy();
}
std::vector<float> CompressorRig::memory_state(uint32_t rank, uint64_t item,
                                               const std::string& name) const {
  return ranks_[rank].items[item].memory_states.named(name);
}
std::vector<float> CompressorRig::compressor_state(uint32_t rank, uint64_t item,
                                                   const std::string& name) const {
  return ranks_[rank].items[item].compressor_states.named(name);
}
const std::vector<float>& CompressorRig::sent(uint32_t rank, uint64_t item) const {
  return ranks_[rank].items[item].sent;
}
uint64_t CompressorRig::sent_count(uint32_t rank, uint64_t item) const {
  const PayloadPointer& own = ranks_[rank].items[item].own;
  return own ? own->section(0).count : 0;
}
penstock_item* CompressorRig::compressor_item(uint32_t rank, uint64_t item) {
  return &ranks_[rank].items[item].for_compressor;
}
penstock_item* CompressorRig::memory_item(uint32_t rank, uint64_t item) {
  return &ranks_[rank].items[item].for_memory;
}

}  // namespace penstock::test

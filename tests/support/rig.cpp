// A step of the rig from gradient to result, and what the rig tells about itself; see rig.hpp.
#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <support/rig.hpp>

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
  penstock_exec exec{};
  exec.struct_size = sizeof exec;
  exec.scratch = scratch_.data();
  exec.scratch_bytes = scratch_.size();
  exec.device_type = PENSTOCK_DEVICE_CPU;
  return exec;
}

Tensors CompressorRig::step(const RankTensors& gradients, const StepSettings& settings) {
  std::vector<bool> sends(settings_.ranks, true);
  for (uint32_t rank : settings.joined) sends[rank] = false;
  const bool is_void = settings.void_rank.has_value();
  if (is_void) sends[*settings.void_rank] = false;
  load_gradients(gradients, settings);
  compensate(settings, sends);

  const auto& needs = needs_[index_ % needs_.size()];
  uint32_t n_rounds = 0;
  for (const PlannedNeed& need : needs)
    n_rounds = std::max(n_rounds, static_cast<uint32_t>(need.rounds.size()));
  for (Rank& rank : ranks_)
    for (auto& item : rank.items) item->own.reset();
  for (uint32_t r = 0; r < n_rounds; ++r) {
    ItemList items;  // an item takes part in as many rounds as it planned
    for (uint64_t i = 0; i < needs.size(); ++i)
      if (needs[i].rounds.size() > r) items.push_back(i);
    round(r, items, settings, sends, is_void);
  }
  finish(settings, sends);
  Tensors mean = results(settings);
  check_guards();
  check_replicated();
  ++index_;
  return mean;
}

void CompressorRig::load_gradients(const RankTensors& gradients, const StepSettings& settings) {
  for (uint32_t r = 0; r < settings_.ranks; ++r)
    for (uint64_t i = 0; i < n_items(); ++i) {
      RigItem& item = *ranks_[r].items[i];
      const std::vector<float>& from = gradients.at(r).at(i);
      if (from.size() != item.grad.size())
        throw std::invalid_argument("a gradient has another size than its item");
      for (uint64_t e = 0; e < from.size(); ++e)
        item.grad[e] = from[e] * static_cast<float>(settings.grad_scale);
      item.for_compressor.learning_rate = item.for_memory.learning_rate = settings.learning_rate;
      item.scratch_work.scribble();
    }
}

void CompressorRig::compensate(const StepSettings& settings, const std::vector<bool>& sends) {
  if (!ranks_[0].memory || n_items() == 0 || settings_.fold) return;
  const uint64_t n_scalars = memory_needs_[0].n_scalars;
  std::vector<float> summed(n_items() * n_scalars, 0.0f);
  for (int pass = 0; pass < 2; ++pass) {  // all measure before anybody compensates
    for (uint32_t r = 0; r < settings_.ranks; ++r) {
      if (!sends[r]) continue;
      const MemoryInstance& memory = *ranks_[r].memory;
      std::vector<penstock_item*> items;
      for (uint64_t i = 0; i < n_items(); ++i) items.push_back(memory_item(r, i));
      const penstock_step step = step_facts(r, settings);
      penstock_exec no_scratch = exec();
      no_scratch.scratch = nullptr;
      no_scratch.scratch_bytes = 0;
      if (pass == 1) {
        PENSTOCK_EXPECT_OK(memory.table().compensate(memory.self(), &no_scratch, &step,
                                                     items.data(), items.size(),
                                                     n_scalars == 0 ? nullptr : summed.data()));
      } else if (n_scalars > 0) {
        std::vector<float> scalars(summed.size());
        PENSTOCK_EXPECT_OK(memory.table().measure(memory.self(), &no_scratch, &step, items.data(),
                                                  items.size(), scalars.data()));
        for (uint64_t s = 0; s < scalars.size(); ++s) summed[s] += scalars[s];
      }
    }
  }
}

// Divides means, lets memories record and finish, and gives back what had no effect.
void CompressorRig::finish(const StepSettings& settings, const std::vector<bool>& sends) {
  const bool is_void = settings.void_rank.has_value();
  const auto& needs = needs_[index_ % needs_.size()];
  for (uint32_t r = 0; r < settings_.ranks; ++r) {
    Rank& rank = ranks_[r];
    const penstock_step step = step_facts(r, settings);
    const penstock_exec call = exec();
    for (uint64_t i = 0; i < n_items(); ++i) {
      RigItem& item = *rank.items[i];
      if (is_void) {
        std::fill(item.grad.begin(), item.grad.end(), std::numeric_limits<float>::quiet_NaN());
        continue;
      }
      if (needs[i].rounds.empty()) {
        std::fill(item.grad.begin(), item.grad.end(), 0.0f);
        continue;
      }
      if (needs[i].rounds.back().c.result != PENSTOCK_RESULT_FINAL)
        for (float& value : item.grad) value /= static_cast<float>(settings_.ranks);
      if (!rank.memory) continue;
      penstock_item* view = &item.for_memory;
      const penstock_memory& table = rank.memory->table();
      if (table.record != nullptr && sends[r] && item.own) {
        const penstock_payload* taken = item.own->c();
        PENSTOCK_EXPECT_OK(table.record(rank.memory->self(), &call, &step, &view, 1, &taken));
      }
      if (table.finish != nullptr) {
        PENSTOCK_EXPECT_OK(table.finish(rank.memory->self(), &call, &step, &view, 1));
      }
    }
    if (is_void || !settings.applied) give_back_all(r, settings);
  }
}

void CompressorRig::give_back_all(uint32_t rank, const StepSettings& settings) {
  for (uint64_t i = 0; i < n_items(); ++i) {
    RigItem& item = *ranks_[rank].items[i];
    if (!keeps(i) && !settings.void_rank && !item.memory_pointers.empty() &&
        ranks_[rank].memory->table().give_back != nullptr)
      give_back(rank, i, *sparse_payload({}, {}, static_cast<int32_t>(rank)), settings);
    if (!keeps(i) || !item.own) continue;
    const bool readable = item.own->c()->kind == PENSTOCK_PAYLOAD_SPARSE ||
                          item.own->c()->kind == PENSTOCK_PAYLOAD_DENSE;
    bool is_float32 = readable;
    for (uint64_t s = 0; s < item.own->n_sections(); ++s)
      if (item.own->section(s).role == PENSTOCK_ROLE_VALUES)
        is_float32 &= item.own->section(s).dtype == PENSTOCK_FLOAT32;
    if (is_float32) {
      give_back(rank, i, *item.own, settings);
    } else {  // what was decoded under OWN
      give_back(rank, i, *dense_payload(item.sent, static_cast<int32_t>(rank)), settings);
    }
  }
}

void CompressorRig::give_back(uint32_t rank, uint64_t item, OwnedPayload& payload,
                              const StepSettings& settings) {
  const MemoryInstance& memory = *ranks_[rank].memory;
  ASSERT_NE(memory.table().give_back, nullptr) << "a memory that keeps has no give_back";
  const penstock_step step = step_facts(rank, settings);
  const penstock_exec call = exec();
  penstock_item* view = memory_item(rank, item);
  const penstock_payload* given = payload.c();
  PENSTOCK_EXPECT_OK(memory.table().give_back(memory.self(), &call, &step, &view, 1, &given));
}

Tensors CompressorRig::results(const StepSettings& settings) {
  Tensors mean;
  for (uint64_t i = 0; i < n_items(); ++i) {
    const std::vector<float> first = ranks_[0].items[i]->grad.copy();
    for (uint32_t r = 1; r < settings_.ranks; ++r)
      EXPECT_TRUE(
          same_bytes(first.data(), ranks_[r].items[i]->grad.data(), first.size() * sizeof(float)))
          << "rank " << r << " has another result for item " << i << " in step " << index_;
    mean.push_back(first);
    // Work in true units gives a result in true units; the gradient itself is still scaled.
    if (memory_needs_[i].work_is == PENSTOCK_WORK_IS_GRAD)
      for (float& value : mean.back()) value /= static_cast<float>(settings.grad_scale);
  }
  return mean;
}

void CompressorRig::check_guards() {
  EXPECT_TRUE(scratch_.intact()) << "scratch was overrun in step " << index_;
  for (uint32_t r = 0; r < settings_.ranks; ++r)
    for (const auto& item : ranks_[r].items) {
      bool intact = item->grad.intact() && item->scratch_work.intact();
      for (const State& state : item->compressor_states) intact &= state.bytes.intact();
      for (const State& state : item->memory_states) intact &= state.bytes.intact();
      EXPECT_TRUE(intact) << "a buffer of '" << item->name << "' was overrun on rank " << r;
    }
}

void CompressorRig::check_replicated() {
  const auto compare = [&](const std::deque<State>& ours, const std::deque<State>& first,
                           uint32_t rank) {
    for (uint64_t s = 0; s < ours.size(); ++s)
      if (ours[s].state_class == PENSTOCK_STATE_REPLICATED) {
        EXPECT_TRUE(same_bytes(ours[s].bytes.data(), first[s].bytes.data(), ours[s].bytes.size()))
            << "replicated state '" << ours[s].name << "' differs on rank " << rank;
      }
  };
  for (uint32_t r = 1; r < settings_.ranks; ++r)
    for (uint64_t i = 0; i < n_items(); ++i) {
      compare(ranks_[r].items[i]->compressor_states, ranks_[0].items[i]->compressor_states, r);
      compare(ranks_[r].items[i]->memory_states, ranks_[0].items[i]->memory_states, r);
    }
}

std::vector<float> CompressorRig::drain(uint32_t rank, uint64_t item) {
  const MemoryInstance& memory = *ranks_[rank].memory;
  RigItem& of = *ranks_[rank].items[item];
  std::fill(of.grad.begin(), of.grad.end(), 0.0f);
  penstock_item* view = memory_item(rank, item);
  const penstock_exec call = exec();
  if (memory.table().drain != nullptr) {
    PENSTOCK_EXPECT_OK(memory.table().drain(memory.self(), &call, &view, 1));
  }
  return of.grad.copy();
}

std::vector<float> CompressorRig::work(uint32_t rank, uint64_t item) const {
  const penstock_tensor& work = ranks_[rank].items[item]->c.work;
  const float* data = static_cast<const float*>(work.data);
  return {data, data + work.numel};
}

namespace {
template <typename States>
std::vector<float> state_named(const States& states, const std::string& name) {
  for (const auto& state : states) {
    if (state.name != name) continue;
    const float* data = static_cast<const float*>(state.tensor.data);
    return {data, data + state.tensor.numel};
  }
  throw std::invalid_argument("no state is named '" + name + "'");
}
}  // namespace

std::vector<float> CompressorRig::memory_state(uint32_t rank, uint64_t item,
                                               const std::string& name) const {
  return state_named(ranks_[rank].items[item]->memory_states, name);
}
std::vector<float> CompressorRig::compressor_state(uint32_t rank, uint64_t item,
                                                   const std::string& name) const {
  return state_named(ranks_[rank].items[item]->compressor_states, name);
}
const std::vector<float>& CompressorRig::sent(uint32_t rank, uint64_t item) const {
  return ranks_[rank].items[item]->sent;
}
uint64_t CompressorRig::sent_count(uint32_t rank, uint64_t item) const {
  const PayloadPointer& own = ranks_[rank].items[item]->own;
  return own ? own->section(0).count : 0;
}
penstock_item* CompressorRig::compressor_item(uint32_t rank, uint64_t item) {
  return &ranks_[rank].items[item]->for_compressor;
}
penstock_item* CompressorRig::memory_item(uint32_t rank, uint64_t item) {
  return &ranks_[rank].items[item]->for_memory;
}

}  // namespace penstock::test

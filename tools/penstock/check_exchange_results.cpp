// The simulated step: planning, decoding, and what must hold at its end.
#include "tools/penstock/check_exchange.hpp"

#include "core/fit/item.hpp"
#include "core/fit/needs.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace penstock::command {

Result<std::unique_ptr<Exchange>> Exchange::make(const Subject& subject,
                                                 const std::vector<Shape>& shapes, uint32_t world,
                                                 bool keep) {
  auto exchange = std::unique_ptr<Exchange>(new Exchange(world, keep));
  for (uint32_t r = 0; r < world; ++r) {
    SimulatedRank& rank = exchange->ranks_.emplace_back();
    PENSTOCK_ASSIGN(rank.instance, make_default<penstock_compressor>(subject));
    for (size_t i = 0; i < shapes.size(); ++i) {
      SimulatedItem& item = rank.items.emplace_back();
      item.shape = shapes[i];
      item.name = "gradient." + shapes[i].label;
      describe_item(item.c, item.shape, item.name, i);
      item.c.flags = keep ? uint32_t{PENSTOCK_ITEM_KEEP} : 0u;
    }
    PENSTOCK_TRY(exchange->plan(rank));
  }
  return exchange;
}

void Exchange::make_states(SimulatedItem& item, const penstock_compressor_need& need) {
  for (uint64_t s = 0; s < need.n_states; ++s) {
    const penstock_state_declaration& state = *need.states[s];
    const uint64_t elements = state.rows * state.cols;
    item.states.emplace_back(elements * dtype_bytes(state.dtype));
    item.state_classes.push_back(state.state_class);
    penstock_tensor& tensor = item.state_tensors.emplace_back();
    tensor = float_tensor(item.shape, item.states.back().data());
    tensor.numel = elements;
    tensor.dtype = state.dtype;
    item.state_pointers.push_back(&tensor);
  }
}

Status Exchange::plan(SimulatedRank& rank) {
  Items items;
  for (const SimulatedItem& item : rank.items) items.push_back(&item.c);
  uint64_t scratch = 0;
  CompressorNeeds first, later;
  for (uint32_t phase = 0; phase < period_; ++phase) {
    CompressorNeeds& needs = phase == 0 ? first : later;
    doing(fmt::format("plan of phase {}: {} floats", phase, rank.items[0].shape.label));
    PENSTOCK_TRY(ask_needs(*rank.instance, phase, world_, items, needs));
    uint64_t phase_scratch = 0;
    for (size_t i = 0; i < items.size(); ++i) {
      SimulatedItem& item = rank.items[i];
      const penstock_compressor_need& need = needs[i].c;
      const uint32_t period = std::max(need.period, 1u);
      if (phase == 0 && i == 0) period_ = period;
      if (period != period_) return internal("the plan's period differs between items");
      if (phase > 0) PENSTOCK_TRY(check_phases(*rank.instance, item.c, first[i], phase, needs[i]));
      if (phase == 0) make_states(item, need);
      item.rounds.push_back(copy_rounds(need));
      item.flags = need.flags;
      phase_scratch += (need.scratch_bytes + 63) / 64 * 64;
    }
    scratch = std::max(scratch, phase_scratch);
  }
  for (SimulatedItem& item : rank.items) {
    const uint64_t bytes = item.c.numel * sizeof(float);
    item.grad = GuardedBuffer(bytes);
    item.work = GuardedBuffer(keep_ ? bytes : 0);
    item.own_out = GuardedBuffer(bytes);
    // As in the engine: results land in the gradient's storage, and without a memory so is work.
    item.c.grad.data = item.c.out.data = item.grad.data();
    item.c.work.data = keep_ ? item.work.data() : item.grad.data();
    item.c.states = item.state_pointers.data();
    item.c.n_states = item.state_pointers.size();
  }
  rank.scratch = GuardedBuffer(scratch);
  rank.exec.struct_size = sizeof rank.exec;
  rank.exec.scratch = rank.scratch.data();
  rank.exec.scratch_bytes = scratch;
  rank.exec.device_type = PENSTOCK_DEVICE_CPU;
  return {};
}

Status Exchange::decode(uint32_t rank, uint32_t round, const std::vector<size_t>& positions,
                        const std::vector<std::deque<GuardedPayload>*>& received) {
  if (positions.empty()) return {};
  SimulatedRank& self = ranks_[rank];
  step_.rank = rank;
  std::vector<const penstock_item*> items;
  std::vector<const penstock_payload*> payloads;
  for (size_t i = 0; i < positions.size(); ++i) {
    items.push_back(&self.items[positions[i]].c);
    for (GuardedPayload& payload : *received[i]) payloads.push_back(payload.c());
  }
  doing(fmt::format("decode round {}: {}", round, label(positions.front())));
  PENSTOCK_TRY(from_c(self.instance->table()->decode(
      self.instance->self(), &self.exec, &step_, round, items.data(), items.size(), payloads.data(),
      received[0]->size(), PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST)));
  for (auto* each : received)
    for (const GuardedPayload& payload : *each) PENSTOCK_TRY(payload.check_walls());
  return check_walls(self);
}

Status Exchange::decode_all(uint32_t round) {
  // Summed and gathered items come in calls of their own: they have other numbers of payloads.
  for (const uint32_t combine : {PENSTOCK_COMBINE_SUM, PENSTOCK_COMBINE_GATHER}) {
    std::vector<size_t> positions;
    for (const size_t i : active(round))
      if (need(i, round).combine == combine) positions.push_back(i);
    for (uint32_t r = 0; r < world_; ++r) {
      std::deque<std::deque<GuardedPayload>> received(positions.size());
      std::vector<std::deque<GuardedPayload>*> pointers;
      for (size_t i = 0; i < positions.size(); ++i) {
        PENSTOCK_TRY(receive(positions[i], round, received[i]));
        pointers.push_back(&received[i]);
      }
      PENSTOCK_TRY(decode(r, round, positions, pointers).with_context("decode"));
    }
  }
  return {};
}

Status Exchange::check_results() {
  for (size_t i = 0; i < ranks_[0].items.size(); ++i) {
    const std::vector<RoundNeed>& rounds = ranks_[0].items[i].rounds[step_.phase];
    if (rounds.empty()) continue;
    const SimulatedItem& first = ranks_[0].items[i];
    const auto* out = first.grad.as<float>();
    double magnitude = 0;
    for (uint32_t r = 0; r < world_; ++r)
      for (const float value : ranks_[r].items[i].before)
        magnitude = std::max(magnitude, std::abs(double{value}));
    for (uint64_t e = 0; e < first.c.numel; ++e) {
      if (!std::isfinite(out[e])) return internal("out[{}] is not finite ({})", e, label(i));
      if (rounds.back().result == PENSTOCK_RESULT_FINAL) continue;
      double sent = 0, lossless = 0;
      for (uint32_t r = 0; r < world_; ++r) {
        sent += ranks_[r].items[i].own_sent[e];
        lossless += ranks_[r].items[i].before[e];
      }
      const double expected = (first.flags & PENSTOCK_NEED_LOSSLESS) != 0 ? lossless : sent;
      if (!(std::abs(out[e] - expected) <= tolerance(rounds, magnitude)))
        return internal("out[{}] is {}, the payloads of all ranks add up to {} ({})", e, out[e],
                        expected, label(i));
    }
    for (uint32_t r = 1; r < world_; ++r) {
      const SimulatedItem& other = ranks_[r].items[i];
      if (first.grad.copy() != other.grad.copy())
        return internal("ranks 0 and {} decode the same payloads to other bits ({})", r, label(i));
      for (size_t s = 0; s < first.states.size(); ++s)
        if (first.state_classes[s] == PENSTOCK_STATE_REPLICATED &&
            first.states[s].copy() != other.states[s].copy())
          return internal("replicated state {} differs between ranks 0 and {} ({})", s, r,
                          label(i));
    }
  }
  return {};
}

Status Exchange::step(uint64_t index, Input input) {
  PENSTOCK_TRY(start_step(index, input));
  for (uint32_t round = 0; !active(round).empty(); ++round) {
    for (uint32_t r = 0; r < world_; ++r) {
      PENSTOCK_TRY(encode(r, round));
      for (const size_t i : active(round))
        if (is_last(i, round)) PENSTOCK_TRY(check_taken(r, i, round));
    }
    PENSTOCK_TRY(decode_all(round));
    // A step that is not applied gives its payload back only now.
    for (uint32_t r = 0; keep_ && r < world_; ++r)
      for (const size_t i : active(round))
        if (is_last(i, round)) PENSTOCK_TRY(check_taken(r, i, round).with_context("after decode"));
  }
  return check_results();
}

}  // namespace penstock::command

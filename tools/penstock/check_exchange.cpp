// The simulated step: encode, what travels, and what must hold of it.
#include "tools/penstock/check_exchange.hpp"

#include "core/fit/item.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace penstock::command {

namespace {

double largest(const std::vector<float>& values) {
  double most = 0;
  for (const float value : values) most = std::max(most, std::abs(double{value}));
  return most;
}

}  // namespace

double tolerance(const std::vector<RoundNeed>& rounds, double magnitude) {
  double unit = 1e-4;  // float32 sums of a few thousand products
  for (const RoundNeed& round : rounds)
    for (const SectionNeed& section : round.sections) {
      if (section.dtype == PENSTOCK_FLOAT16) unit = std::max(unit, 2e-3);   // 11 bits, added twice
      if (section.dtype == PENSTOCK_BFLOAT16) unit = std::max(unit, 2e-2);  // 8 bits, added twice
    }
  return unit * magnitude + 1e-6;
}

std::vector<size_t> Exchange::active(uint32_t round) const {
  std::vector<size_t> items;
  for (size_t i = 0; i < ranks_[0].items.size(); ++i)
    if (ranks_[0].items[i].rounds[step_.phase].size() > round) items.push_back(i);
  return items;
}

const RoundNeed& Exchange::need(size_t item, uint32_t round) const {
  return ranks_[0].items[item].rounds[step_.phase][round];
}

bool Exchange::is_last(size_t item, uint32_t round) const {
  return round + 1 == ranks_[0].items[item].rounds[step_.phase].size();
}

std::string Exchange::label(size_t item) const {
  return fmt::format("{} floats, {}, {} rank(s), {}, step {}", ranks_[0].items[item].shape.label,
                     input_, world_, keep_ ? "with a memory" : "without a memory", step_.index);
}

Status Exchange::start_step(uint64_t index, Input input) {
  step_.struct_size = sizeof step_;
  step_.index = index;
  step_.seed = 1;
  step_.grad_scale = 1;
  step_.phase = static_cast<uint32_t>(index % period_);
  step_.world = world_;
  input_ = input_name(input);
  for (uint32_t r = 0; r < world_; ++r)
    for (SimulatedItem& item : ranks_[r].items) {
      auto* work = static_cast<float*>(item.c.work.data);
      fill_input(input, r, index, item.c.gradient, work, item.c.numel);
      item.before.assign(work, work + item.c.numel);
      item.own_sent.clear();
    }
  return {};
}

Status Exchange::encode(uint32_t rank, uint32_t round) {
  SimulatedRank& self = ranks_[rank];
  step_.rank = rank;
  std::vector<const penstock_item*> items;
  std::vector<penstock_payload*> payloads;
  for (const size_t i : active(round)) {
    self.items[i].own.plan(need(i, round), static_cast<int32_t>(rank));
    items.push_back(&self.items[i].c);
    payloads.push_back(self.items[i].own.c());
  }
  if (items.empty()) return {};
  doing(fmt::format("encode round {}: {}", round, label(active(round).front())));
  PENSTOCK_TRY(
      from_c(self.instance->table()->encode(self.instance->self(), &self.exec, &step_, round,
                                            items.data(), items.size(), payloads.data()))
          .with_context("encode"));
  for (const size_t i : active(round))
    PENSTOCK_TRY(check_encoded(self.items[i], i, round).with_context("encode: " + label(i)));
  return check_walls(self).with_context("encode");
}

Status Exchange::check_encoded(SimulatedItem& item, size_t position, uint32_t round) const {
  PENSTOCK_TRY(item.own.check_walls());
  const RoundNeed& planned = need(position, round);
  PayloadStorage& payload = item.own.storage();
  const uint32_t kind = payload.c()->kind;
  if (kind < PENSTOCK_PAYLOAD_ABSENT || kind > PENSTOCK_PAYLOAD_CODED)
    return internal("the payload's kind is {}, expected absent, dense, sparse or coded", kind);
  for (size_t s = 0; s < payload.size(); ++s) {
    const uint64_t count = payload.section(s).count, capacity = planned.sections[s].capacity;
    const bool exact = planned.combine == PENSTOCK_COMBINE_SUM || planned.sections[s].exact;
    if (count > capacity || (exact && count != capacity && kind != PENSTOCK_PAYLOAD_ABSENT))
      return internal("wrote {} elements into section {}, {} {} planned", count, s,
                      exact ? "exactly" : "at most", capacity);
  }
  if (kind == PENSTOCK_PAYLOAD_DENSE &&
      (payload.size() != 1 || payload.section(0).count != item.c.numel))
    return internal("a dense payload needs one section with an entry for each element");
  if (kind == PENSTOCK_PAYLOAD_SPARSE) {
    if (payload.size() != 2 || payload.section(0).dtype != PENSTOCK_UINT32 ||
        payload.section(0).count != payload.section(1).count)
      return internal("a sparse payload needs uint32 indices and as many values");
    const auto* index = static_cast<const uint32_t*>(payload.section(0).data);
    for (uint64_t e = 0; e < payload.section(0).count; ++e)
      if (index[e] >= item.c.numel || (e > 0 && index[e] <= index[e - 1]))
        return internal("index {} stands at {}, expected ascending ones below {}", index[e], e,
                        item.c.numel);
  }
  const bool may_take = keep_ && is_last(position, round);
  if (!may_take && !item.before.empty() &&
      std::memcmp(item.c.work.data, item.before.data(), item.c.numel * sizeof(float)) != 0)
    return internal("changed work{}",
                    keep_ ? " before the last round" : " although nothing is kept");
  return {};
}

Status Exchange::decode_own(uint32_t rank, size_t position, uint32_t round,
                            std::vector<float>& result) {
  SimulatedRank& self = ranks_[rank];
  SimulatedItem& item = self.items[position];
  std::vector<std::string> states;
  for (const GuardedBuffer& state : item.states) states.push_back(state.copy());
  penstock_item alone = item.c;
  alone.out.data = item.own_out.data();
  const penstock_item* items[] = {&alone};
  const penstock_payload* payloads[] = {item.own.c()};
  step_.rank = rank;
  doing(fmt::format("decode of the own payload: {}", label(position)));
  PENSTOCK_TRY(from_c(self.instance->table()->decode(
                          self.instance->self(), &self.exec, &step_, round, items, 1, payloads, 1,
                          PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST | PENSTOCK_DECODE_OWN))
                   .with_context("decode of the own payload"));
  for (size_t s = 0; s < states.size(); ++s)
    if (states[s] != item.states[s].copy())
      return internal("decode of the own payload changed state {} ({})", s, label(position));
  const auto* out = item.own_out.as<float>();
  result.assign(out, out + item.c.numel);
  return check_walls(self).with_context("decode of the own payload");
}

// work_before - work_after must be what the payload stands for.
Status Exchange::check_taken(uint32_t rank, size_t position, uint32_t round) {
  SimulatedItem& item = ranks_[rank].items[position];
  PENSTOCK_TRY(decode_own(rank, position, round, item.own_sent));
  if (!keep_) return {};
  const auto* after = static_cast<const float*>(item.c.work.data);
  const double allowed =
      tolerance(item.rounds[step_.phase], std::max(largest(item.before), largest(item.own_sent)));
  for (uint64_t e = 0; e < item.c.numel; ++e) {
    const double taken = double{item.before[e]} - after[e];
    if (!(std::abs(taken - item.own_sent[e]) <= allowed))
      return internal(
          "take-out: element {} of work lost {}, its payload stands for {} ({}); what leaves work "
          "must be what is sent, the rounding of values included",
          e, taken, item.own_sent[e], label(position));
  }
  return {};
}

Status Exchange::receive(size_t position, uint32_t round, std::deque<GuardedPayload>& received) {
  const RoundNeed& planned = need(position, round);
  received.clear();
  if (planned.combine != PENSTOCK_COMBINE_SUM) {
    for (uint32_t r = 0; r < world_; ++r)
      received.emplace_back().receive(planned, ranks_[r].items[position].own,
                                      static_cast<int32_t>(r));
    return {};
  }
  received.emplace_back().receive(planned, ranks_[0].items[position].own, -1);
  PayloadStorage& sum = received[0].storage();
  for (uint32_t r = 1; r < world_; ++r)
    for (size_t s = 0; s < sum.size(); ++s)
      PENSTOCK_TRY(reduce(sum.section(s).dtype, planned.reduction, sum.section(s).data,
                          ranks_[r].items[position].own.storage().section(s).data,
                          sum.section(s).count));
  return {};
}

Status Exchange::check_walls(const SimulatedRank& rank) const {
  for (const SimulatedItem& item : rank.items) {
    for (const GuardedBuffer* buffer : {&item.grad, &item.work, &item.own_out})
      if (!buffer->intact())
        return internal("wrote beside work or out of a gradient of {} floats", item.shape.label);
    for (size_t s = 0; s < item.states.size(); ++s)
      if (!item.states[s].intact()) return internal("wrote beside state {}", s);
  }
  if (!rank.scratch.intact())
    return internal("wrote beyond the {} bytes of scratch that were planned", rank.scratch.bytes());
  return {};
}

}  // namespace penstock::command

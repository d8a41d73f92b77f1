// A round of the rig: encode on every rank, combine the payloads, decode on every rank.
#include <algorithm>
#include <cmath>
#include <testing/rig.hpp>

namespace penstock::test {
namespace {

double largest(const std::vector<float>& values) {
  double most = 0;
  for (const float value : values) most = std::max(most, std::fabs(double{value}));
  return most;
}

// Checks that a payload has pairs with ascending indices, which any plugin can read.
void promise_pairs(OwnedPayload& payload, uint64_t numel, const std::string& whose) {
  promise(payload.n_sections() >= 2 && payload.section(0).dtype == PENSTOCK_UINT32 &&
              payload.section(0).count == payload.section(1).count,
          "the sparse payload of ", whose, " needs uint32 indices and then as many values");
  const auto* indices = static_cast<const uint32_t*>(payload.section(0).data);
  for (uint64_t e = 0; e < payload.section(0).count; ++e)
    if (indices[e] >= numel)
      promise(false, "index ", indices[e], " of ", whose, " is not below ", numel);
}

}  // namespace

ItemViews CompressorRig::compressor_items(uint32_t rank, const ItemList& items) {
  ItemViews views;
  for (uint64_t i : items) views.push_back(compressor_item(rank, i));
  return views;
}

void CompressorRig::round(uint32_t round, const ItemList& items, const StepSettings& settings,
                          const std::vector<bool>& sends, bool is_void) {
  Payloads payloads;
  for (uint32_t r = 0; r < settings_.ranks; ++r) {
    payloads.push_back(encode(r, round, items, settings, sends[r]));
    if (sends[r]) refuse_entries(r, items, payloads.back(), settings);
  }
  if (faulty_) try_faults(round, items, payloads, settings);
  if (!is_void) deliver(round, items, payloads, settings);
  for (uint32_t r = 0; r < settings_.ranks; ++r)
    for (uint64_t p = 0; p < items.size(); ++p) {
      SimulatedItem& item = ranks_[r].items[items[p]];
      if (!sends[r] || !is_last(items[p], round)) continue;
      item.own = std::move(payloads[r][p]);
      if (settings_.check_mass && !is_void && (item.c.flags & PENSTOCK_ITEM_KEEP) != 0 &&
          !settings.refuse)
        promise_mass(r, items[p], decode_own(r, round, items[p], *item.own, settings));
    }
}

// Sums and gathered payloads are different messages, so their items are decoded in different calls.
void CompressorRig::deliver(uint32_t round, const ItemList& items, const Payloads& payloads,
                            const StepSettings& settings) {
  for (uint32_t combine : {PENSTOCK_COMBINE_SUM, PENSTOCK_COMBINE_GATHER}) {
    ItemList group;
    Received received;
    std::vector<PayloadPointer> sums;
    for (uint64_t p = 0; p < items.size(); ++p) {
      const PlannedRound& planned = needs()[items[p]].rounds[round];
      if (planned.c.combine != combine) continue;
      group.push_back(items[p]);
      auto& of_item = received.emplace_back();
      for (const auto& of_rank : payloads) of_item.push_back(of_rank[p].get());
      if (combine != PENSTOCK_COMBINE_SUM) continue;
      sums.push_back(reduced(planned, of_item));
      of_item = {sums.back().get()};
    }
    if (group.empty()) continue;
    for (uint32_t r = 0; r < settings_.ranks; ++r)
      require(decode(r, round, group, received, settings), "decode");
  }
}

std::vector<PayloadPointer> CompressorRig::encode(uint32_t rank, uint32_t round,
                                                  const ItemList& items,
                                                  const StepSettings& settings, bool sends) {
  const bool folds = settings_.fold && round == 0;
  std::vector<PayloadPointer> payloads;
  std::vector<penstock_payload*> pointers;
  for (uint64_t i : items) {
    payloads.push_back(std::make_unique<OwnedPayload>(needs()[i].rounds[round].sections,
                                                      static_cast<int32_t>(rank)));
    pointers.push_back(payloads.back()->c());
    ranks_[rank].items[i].before = folds && sends ? compensated(rank, i, settings) : work(rank, i);
  }
  if (!sends) {
    for (auto& payload : payloads) payload->make_absent();
    return payloads;
  }
  about_to_call("encode", rank, items);
  require(folds ? encode_folded(rank, round, items, settings, pointers)
                : ranks_[rank].compressor->encode(exec(), step_facts(rank, settings), round,
                                                  compressor_items(rank, items), pointers),
          "encode");
  for (uint64_t p = 0; p < items.size(); ++p) promise_payload(*payloads[p], rank, items[p], round);
  promise_intact("encode");
  for (uint64_t p = 0; p < items.size(); ++p) {
    if (!is_last(items[p], round)) continue;
    SimulatedItem& item = ranks_[rank].items[items[p]];
    item.sent = decode_own(rank, round, items[p], *payloads[p], settings);
    if (settings_.check_mass && (item.c.flags & PENSTOCK_ITEM_KEEP) != 0)
      promise_mass(rank, items[p], item.sent);
  }
  return payloads;
}

void CompressorRig::promise_payload(OwnedPayload& payload, uint32_t rank, uint64_t i,
                                    uint32_t round) const {
  const std::string whose = where(rank, i);
  const SimulatedItem& item = ranks_[rank].items[i];
  const PlannedRound& planned = needs()[i].rounds[round];
  promise(payload.intact(),
          "encode wrote beyond a section of the payload, which was overrun: ", whose);
  const uint32_t kind = payload.c()->kind;
  promise(kind >= PENSTOCK_PAYLOAD_ABSENT && kind <= PENSTOCK_PAYLOAD_CODED, "the payload of ",
          whose, " has kind ", kind, ", expected absent, dense, sparse or coded");
  for (uint64_t s = 0; s < payload.n_sections(); ++s) {
    const penstock_section& section = payload.section(s);
    const bool exact = planned.c.combine == PENSTOCK_COMBINE_SUM ||
                       (planned.sections[s].flags & PENSTOCK_SECTION_EXACT) != 0;
    promise(section.count == section.capacity ||
                (section.count < section.capacity && (!exact || payload.is_absent())),
            "section ", s, " of ", whose, " has ", section.count, " elements, ",
            exact ? "exactly " : "at most ", section.capacity, " planned");
    if (section.role != PENSTOCK_ROLE_INDICES || section.dtype != PENSTOCK_UINT32) continue;
    const auto* indices = static_cast<const uint32_t*>(section.data);
    for (uint64_t e = 1; e < section.count; ++e)
      if (indices[e - 1] >= indices[e]) promise(false, "indices of ", whose, " do not ascend");
  }
  promise(kind != PENSTOCK_PAYLOAD_DENSE ||
              (payload.n_sections() == 1 && payload.section(0).count == item.c.numel),
          "the dense payload of ", whose, " needs one section with an entry for each element");
  if (kind == PENSTOCK_PAYLOAD_SPARSE) promise_pairs(payload, item.c.numel, whose);
  const bool may_take = is_last(i, round) && (item.c.flags & PENSTOCK_ITEM_KEEP) != 0;
  promise(may_take || same_bytes(item.before.data(), item.work(), item.c.numel * sizeof(float)),
          "encode changed work of ", whose,
          is_last(i, round) ? " although nothing is kept of it" : " before the last round");
}

// Decodes the payload of one rank. Changes neither out nor any state.
std::vector<float> CompressorRig::decode_own(uint32_t rank, uint32_t round, uint64_t i,
                                             OwnedPayload& payload, const StepSettings& settings) {
  SimulatedItem& item = ranks_[rank].items[i];
  Guarded<float> sent(item.grad.size());
  std::fill(sent.begin(), sent.end(), 7.0f);  // FIRST must clear it
  penstock_item view = item.for_compressor;
  view.out.data = sent.data();
  std::vector<std::vector<unsigned char>> states;
  for (uint64_t s = 0; s < item.compressor_states.size(); ++s)
    states.push_back(item.compressor_states[s].bytes.copy());
  about_to_call("decode of the own payload", rank, {i});
  require(ranks_[rank].compressor->decode(
              exec(), step_facts(rank, settings), round, {&view}, {payload.c()}, 1,
              PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST | PENSTOCK_DECODE_OWN),
          "decode of the own payload");
  promise(sent.intact(), "decode of the own payload wrote beyond out: ", where(rank, i));
  promise_intact("decode of the own payload");
  for (uint64_t s = 0; s < states.size(); ++s)
    promise(states[s] == item.compressor_states[s].bytes.copy(),
            "decode of the own payload changed state '", item.compressor_states[s].name,
            "': ", where(rank, i));
  return sent.copy();
}

// Checks that work before encode minus work after it equals the decoded payload.
void CompressorRig::promise_mass(uint32_t rank, uint64_t i, const std::vector<float>& sent) const {
  const SimulatedItem& item = ranks_[rank].items[i];
  const bool by_types = settings_.mass_tolerance < 0;
  const double most = largest(item.before);
  const double allowed =
      by_types ? tolerance(i, std::max(most, largest(sent))) : settings_.mass_tolerance * most;
  for (uint64_t e = 0; e < sent.size(); ++e) {
    const double lost = double{item.before[e]} - item.work()[e];
    if (!(std::fabs(lost - sent[e]) <= allowed))
      promise(false, "element ", e, " of work lost ", lost, ", its payload stands for ", sent[e],
              ": ", where(rank, i),
              ": encode took out something else than it sent, the rounding of values included");
  }
}

// The allowed difference between two values whose largest operand is `magnitude`, after rounding to
// the sections' element types.
double CompressorRig::tolerance(uint64_t item, double magnitude) const {
  double unit = 1e-4;  // float32 sums of a few thousand products
  for (const PlannedRound& round : needs()[item].rounds)
    for (const penstock_section_bound& section : round.sections) {
      if (section.dtype == PENSTOCK_FLOAT16) unit = std::max(unit, 2e-3);   // 11 bits, added twice
      if (section.dtype == PENSTOCK_BFLOAT16) unit = std::max(unit, 2e-2);  // 8 bits, added twice
    }
  return unit * magnitude + 1e-6;
}

Outcome CompressorRig::decode(uint32_t rank, uint32_t round, const ItemList& items,
                              const Received& payloads, const StepSettings& settings) {
  const ItemViews views = compressor_items(rank, items);
  const uint64_t n_payloads = payloads[0].size();
  uint64_t slice = settings_.ranks_per_slice == 0 ? n_payloads : settings_.ranks_per_slice;
  for (uint64_t i : items)
    if ((needs()[i].rounds[round].c.flags & PENSTOCK_ROUND_ALL_PAYLOADS) != 0) slice = n_payloads;
  for (uint64_t begin = 0; begin < n_payloads; begin += slice) {
    const uint64_t end = std::min(begin + slice, n_payloads);
    std::vector<const penstock_payload*> pointers;
    for (const auto& of_item : payloads)
      for (uint64_t p = begin; p < end; ++p) pointers.push_back(of_item[p]->c());
    uint32_t flags = 0;
    if (begin == 0) flags |= PENSTOCK_DECODE_FIRST;
    if (end == n_payloads) flags |= PENSTOCK_DECODE_LAST;
    about_to_call("decode", rank, items);
    penstock_step step = step_facts(rank, settings);
    if (settings_.mean_by_decode) step.result_scale = 1.0 / settings_.ranks;
    const Outcome outcome =
        ranks_[rank].compressor->decode(exec(), step, round, views, pointers, end - begin, flags);
    if (!outcome.ok()) return outcome;
  }
  for (const auto& of_item : payloads)
    for (const OwnedPayload* payload : of_item)
      promise(payload->intact(), "decode wrote beside a payload: ", where(rank, items[0]));
  return {};
}

// Takes the refused entries out of the payloads before any rank receives them, and gives them back
// to the memory of their rank.
void CompressorRig::refuse_entries(uint32_t rank, const ItemList& items,
                                   const std::vector<PayloadPointer>& payloads,
                                   const StepSettings& settings) {
  if (!settings.refuse) return;
  for (uint64_t p = 0; p < items.size(); ++p) {
    OwnedPayload& payload = *payloads[p];
    // Only pairs with float32 values go to a collective that could refuse any.
    if (payload.c()->kind != PENSTOCK_PAYLOAD_SPARSE || payload.n_sections() != 2 ||
        payload.section(1).dtype != PENSTOCK_FLOAT32)
      continue;
    auto* indices = static_cast<uint32_t*>(payload.section(0).data);
    auto* values = static_cast<float*>(payload.section(1).data);
    std::vector<uint32_t> refused_indices;
    std::vector<float> refused_values;
    uint64_t kept = 0;
    for (uint64_t e = 0; e < payload.section(0).count; ++e) {
      if (settings.refuse(rank, items[p], e)) {
        refused_indices.push_back(indices[e]);
        refused_values.push_back(values[e]);
        ranks_[rank].items[items[p]].sent[indices[e]] = 0;
      } else {
        indices[kept] = indices[e];
        values[kept++] = values[e];
      }
    }
    payload.section(0).count = payload.section(1).count = kept;
    if (!refused_indices.empty())
      give_back(rank, items[p],
                *sparse_payload(refused_indices, refused_values, static_cast<int32_t>(rank)),
                settings);
  }
}

RankTensors draw_gradients(std::vector<float> (*draw)(uint64_t, uint64_t), uint32_t ranks,
                           const std::vector<uint64_t>& numels, uint64_t step) {
  RankTensors gradients(ranks);
  for (uint32_t r = 0; r < ranks; ++r)
    for (uint64_t i = 0; i < numels.size(); ++i)
      gradients[r].push_back(draw(numels[i], 1 + step * 1000003 + r * 1009 + i * 17));
  return gradients;
}

}  // namespace penstock::test

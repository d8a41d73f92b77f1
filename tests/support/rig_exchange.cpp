// A round of the rig: encode on every rank, combine the payloads, decode on every rank.
#include <algorithm>
#include <cmath>
#include <penstock/views.hpp>
#include <stdexcept>
#include <support/data.hpp>
#include <support/half.hpp>
#include <support/rig.hpp>

namespace penstock::test {
namespace {

// total[e] += next[e], in the section's own type; 16-bit floats add in `wide` and round once at the
// end.
template <typename T>
void add_into(void* total, const void* next, uint64_t count) {
  for (uint64_t e = 0; e < count; ++e)
    static_cast<T*>(total)[e] =
        static_cast<T>(static_cast<T*>(total)[e] + static_cast<const T*>(next)[e]);
}

void add_section(penstock_section& total, const penstock_section& next, std::vector<float>& wide) {
  const auto* bits = static_cast<const uint16_t*>(next.data);
  switch (total.dtype) {
    case PENSTOCK_FLOAT16:
    case PENSTOCK_BFLOAT16:
      for (uint64_t e = 0; e < next.count; ++e)
        wide[e] += total.dtype == PENSTOCK_FLOAT16 ? from_float16(bits[e]) : from_bfloat16(bits[e]);
      return;
    case PENSTOCK_FLOAT32:
      return add_into<float>(total.data, next.data, next.count);
    case PENSTOCK_FLOAT64:
      return add_into<double>(total.data, next.data, next.count);
    case PENSTOCK_INT8:
      return add_into<int8_t>(total.data, next.data, next.count);
    case PENSTOCK_INT16:
      return add_into<int16_t>(total.data, next.data, next.count);
    case PENSTOCK_INT32:
      return add_into<int32_t>(total.data, next.data, next.count);
    case PENSTOCK_INT64:
      return add_into<int64_t>(total.data, next.data, next.count);
    default:
      throw std::runtime_error("the rig sums no sections of dtype " + std::to_string(total.dtype));
  }
}

PayloadPointer filled(std::vector<penstock_section_bound> bounds, uint32_t kind, int32_t rank,
                      const std::vector<const void*>& contents) {
  auto payload = std::make_unique<OwnedPayload>(bounds, rank);
  payload->c()->kind = kind;
  for (uint64_t s = 0; s < bounds.size(); ++s) {
    penstock_section& section = payload->section(s);
    section.count = section.capacity;
    if (section.count > 0)
      std::memcpy(section.data, contents[s], section.count * sdk::dtype_bytes(section.dtype));
  }
  return payload;
}

penstock_section_bound bound(uint32_t role, uint32_t dtype, uint64_t capacity) {
  penstock_section_bound made{};
  made.struct_size = sizeof made;
  made.capacity = capacity;
  made.role = role;
  made.dtype = dtype;
  return made;
}

}  // namespace

OwnedPayload::OwnedPayload(const std::vector<penstock_section_bound>& bounds, int32_t rank) {
  for (const penstock_section_bound& bound : bounds) {
    bytes_.emplace_back(bound.capacity * sdk::dtype_bytes(bound.dtype));
    penstock_section& section = sections_.emplace_back();
    section.struct_size = sizeof section;
    section.data = bytes_.back().data();
    section.count = UINT64_MAX;  // encode must set it
    section.capacity = bound.capacity;
    section.role = bound.role;
    section.dtype = bound.dtype;
  }
  for (penstock_section& section : sections_) pointers_.push_back(&section);
  payload_.struct_size = sizeof payload_;
  payload_.sections = pointers_.data();
  payload_.n_sections = pointers_.size();
  payload_.kind = 0;  // encode must set it
  payload_.rank = rank;
}

bool OwnedPayload::intact() const {
  return std::all_of(bytes_.begin(), bytes_.end(), [](const auto& b) { return b.intact(); });
}

PayloadPointer dense_payload(const std::vector<float>& values, int32_t rank) {
  return filled({bound(PENSTOCK_ROLE_VALUES, PENSTOCK_FLOAT32, values.size())},
                PENSTOCK_PAYLOAD_DENSE, rank, {values.data()});
}

PayloadPointer sparse_payload(const std::vector<uint32_t>& indices,
                              const std::vector<float>& values, int32_t rank) {
  return filled({bound(PENSTOCK_ROLE_INDICES, PENSTOCK_UINT32, indices.size()),
                 bound(PENSTOCK_ROLE_VALUES, PENSTOCK_FLOAT32, values.size())},
                PENSTOCK_PAYLOAD_SPARSE, rank, {indices.data(), values.data()});
}

std::vector<penstock_item*> CompressorRig::compressor_items(uint32_t rank, const ItemList& items) {
  std::vector<penstock_item*> views;
  for (uint64_t i : items) views.push_back(compressor_item(rank, i));
  return views;
}

void CompressorRig::round(uint32_t round, const ItemList& items, const StepSettings& settings,
                          const std::vector<bool>& sends, bool is_void) {
  const auto& needs = needs_[index_ % needs_.size()];
  std::vector<std::vector<PayloadPointer>> payloads;  // [rank][position in items]
  for (uint32_t r = 0; r < settings_.ranks; ++r) {
    payloads.push_back(encode(r, round, items, settings, sends[r]));
    if (sends[r]) refuse_entries(r, items, payloads.back(), settings);
  }
  // Sums and gathered payloads are different messages, so their items are decoded in different
  // calls.
  for (uint32_t combine : {PENSTOCK_COMBINE_SUM, PENSTOCK_COMBINE_GATHER}) {
    ItemList group;
    std::vector<std::vector<OwnedPayload*>> received;  // [position in group][payload]
    std::vector<PayloadPointer> sums;
    for (uint64_t p = 0; p < items.size(); ++p) {
      const PlannedRound& planned = needs[items[p]].rounds[round];
      if (planned.c.combine != combine) continue;
      group.push_back(items[p]);
      auto& of_item = received.emplace_back();
      if (combine == PENSTOCK_COMBINE_SUM) {
        sums.push_back(sum(planned, payloads, p));
        of_item.push_back(sums.back().get());
      } else {
        for (auto& of_rank : payloads) of_item.push_back(of_rank[p].get());
      }
    }
    if (group.empty() || is_void) continue;
    for (uint32_t r = 0; r < settings_.ranks; ++r) decode(r, round, group, received, settings);
  }
  for (uint32_t r = 0; r < settings_.ranks; ++r)
    for (uint64_t p = 0; p < items.size(); ++p)
      if (sends[r] && round + 1 == needs[items[p]].rounds.size())
        ranks_[r].items[items[p]]->own = std::move(payloads[r][p]);
}

std::vector<PayloadPointer> CompressorRig::encode(uint32_t rank, uint32_t round,
                                                  const ItemList& items,
                                                  const StepSettings& settings, bool sends) {
  const auto& needs = needs_[index_ % needs_.size()];
  const bool folds = settings_.fold && round == 0;
  std::vector<PayloadPointer> payloads;
  std::vector<penstock_payload*> pointers;
  for (uint64_t i : items) {
    payloads.push_back(std::make_unique<OwnedPayload>(needs[i].rounds[round].sections,
                                                      static_cast<int32_t>(rank)));
    pointers.push_back(payloads.back()->c());
    ranks_[rank].items[i]->before = folds && sends ? compensated(rank, i, settings) : work(rank, i);
  }
  if (!sends) {
    for (auto& payload : payloads) {
      payload->c()->kind = PENSTOCK_PAYLOAD_ABSENT;
      for (uint64_t s = 0; s < payload->n_sections(); ++s) payload->section(s).count = 0;
    }
    return payloads;
  }
  const CompressorInstance& compressor = *ranks_[rank].compressor;
  const std::vector<penstock_item*> views = compressor_items(rank, items);
  const penstock_step step = step_facts(rank, settings);
  const penstock_exec call = exec();
  if (folds) {
    encode_folded(rank, round, items, settings, pointers.data());
  } else {
    PENSTOCK_EXPECT_OK(compressor.table().encode(compressor.self(), &call, &step, round,
                                                 views.data(), views.size(), pointers.data()));
  }
  ItemList last;
  for (uint64_t p = 0; p < items.size(); ++p) {
    RigItem& item = *ranks_[rank].items[items[p]];
    const PlannedNeed& need = needs[items[p]];
    check_payload(*payloads[p], need.rounds[round], item.name + " on rank " + std::to_string(rank));
    const bool is_last = round + 1 == need.rounds.size();
    if (is_last) {
      item.own = std::move(payloads[p]);
      last.push_back(items[p]);
    }
    if (!is_last || (item.c.flags & PENSTOCK_ITEM_KEEP) == 0) {
      EXPECT_TRUE(
          same_bytes(item.before.data(), item.c.work.data, item.before.size() * sizeof(float)))
          << "encode changed work of " << item.name << " although nothing is kept of it";
    }
  }
  if (!last.empty()) decode_own(rank, round, last, settings);
  for (uint64_t p = 0; p < items.size(); ++p)
    if (!payloads[p]) payloads[p] = std::move(ranks_[rank].items[items[p]]->own);
  return payloads;
}

void CompressorRig::check_payload(OwnedPayload& payload, const PlannedRound& round,
                                  const std::string& whose) {
  EXPECT_TRUE(payload.intact()) << "a section of " << whose << " was overrun";
  const uint32_t kind = payload.c()->kind;
  EXPECT_TRUE(kind >= PENSTOCK_PAYLOAD_ABSENT && kind <= PENSTOCK_PAYLOAD_CODED)
      << "the payload of " << whose << " has kind " << kind;
  for (uint64_t s = 0; s < payload.n_sections(); ++s) {
    penstock_section& section = payload.section(s);
    ASSERT_LE(section.count, section.capacity) << "section " << s << " of " << whose;
    const bool exact = round.c.combine == PENSTOCK_COMBINE_SUM ||
                       (round.sections[s].flags & PENSTOCK_SECTION_EXACT) != 0;
    if (exact && kind != PENSTOCK_PAYLOAD_ABSENT) {
      EXPECT_EQ(section.count, section.capacity) << "section " << s << " of " << whose;
    }
    if (section.role != PENSTOCK_ROLE_INDICES || section.dtype != PENSTOCK_UINT32) continue;
    const auto* indices = static_cast<const uint32_t*>(section.data);
    for (uint64_t e = 1; e < section.count; ++e)
      ASSERT_LT(indices[e - 1], indices[e]) << "indices of " << whose << " do not ascend";
  }
}

// What each rank alone sent, into a buffer of the rig; and, where asked, that encode took just that
// out of work.
void CompressorRig::decode_own(uint32_t rank, uint32_t round, const ItemList& items,
                               const StepSettings& settings) {
  std::vector<penstock_item> views;
  std::vector<penstock_item*> pointers;
  std::vector<const penstock_payload*> payloads;
  for (uint64_t i : items) {
    RigItem& item = *ranks_[rank].items[i];
    item.sent.assign(item.grad.size(), 7.0f);  // FIRST must clear it
    penstock_item view = item.for_compressor;
    view.out.data = item.sent.data();
    views.push_back(view);
    payloads.push_back(item.own->c());
  }
  for (penstock_item& view : views) pointers.push_back(&view);
  const CompressorInstance& compressor = *ranks_[rank].compressor;
  const penstock_step step = step_facts(rank, settings);
  const penstock_exec call = exec();
  PENSTOCK_EXPECT_OK(compressor.table().decode(
      compressor.self(), &call, &step, round, pointers.data(), pointers.size(), payloads.data(), 1,
      PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST | PENSTOCK_DECODE_OWN));
  for (uint64_t i : items) {
    RigItem& item = *ranks_[rank].items[i];
    if (!settings_.check_mass || (item.c.flags & PENSTOCK_ITEM_KEEP) == 0) continue;
    const std::vector<float> after = work(rank, i);
    double largest = 0;
    for (float value : item.before) largest = std::max(largest, std::fabs(double{value}));
    for (uint64_t e = 0; e < after.size(); ++e)
      ASSERT_NEAR(double{item.before[e]} - after[e], item.sent[e],
                  settings_.mass_tolerance * largest)
          << "element " << e << " of " << item.name << " in step " << index_ << " on rank " << rank
          << ": encode took out something else than it sent";
  }
}

void CompressorRig::decode(uint32_t rank, uint32_t round, const ItemList& items,
                           const std::vector<std::vector<OwnedPayload*>>& payloads,
                           const StepSettings& settings) {
  const auto& needs = needs_[index_ % needs_.size()];
  const CompressorInstance& compressor = *ranks_[rank].compressor;
  const std::vector<penstock_item*> views = compressor_items(rank, items);
  const penstock_step step = step_facts(rank, settings);
  const uint64_t n_payloads = payloads[0].size();
  uint64_t slice = settings_.ranks_per_slice == 0 ? n_payloads : settings_.ranks_per_slice;
  for (uint64_t i : items)
    if ((needs[i].rounds[round].c.flags & PENSTOCK_ROUND_ALL_PAYLOADS) != 0) slice = n_payloads;
  for (uint64_t begin = 0; begin < n_payloads; begin += slice) {
    const uint64_t end = std::min(begin + slice, n_payloads);
    std::vector<const penstock_payload*> pointers;
    for (const auto& of_item : payloads)
      for (uint64_t p = begin; p < end; ++p) pointers.push_back(of_item[p]->c());
    uint32_t flags = 0;
    if (begin == 0) flags |= PENSTOCK_DECODE_FIRST;
    if (end == n_payloads) flags |= PENSTOCK_DECODE_LAST;
    const penstock_exec call = exec();
    PENSTOCK_EXPECT_OK(compressor.table().decode(compressor.self(), &call, &step, round,
                                                 views.data(), views.size(), pointers.data(),
                                                 end - begin, flags));
  }
}

// Takes the refused entries out of the payloads before anybody sees them and gives them to their
// owner's memory.
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
        ranks_[rank].items[items[p]]->sent[indices[e]] = 0;
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

PayloadPointer CompressorRig::sum(const PlannedRound& round,
                                  const std::vector<std::vector<PayloadPointer>>& payloads,
                                  uint64_t position) {
  auto total = std::make_unique<OwnedPayload>(round.sections, -1);
  total->c()->kind = PENSTOCK_PAYLOAD_ABSENT;
  for (uint64_t s = 0; s < total->n_sections(); ++s) {
    penstock_section& section = total->section(s);
    section.count = section.capacity;
    std::vector<float> wide(section.count, 0.0f);
    for (const auto& of_rank : payloads) {  // ascending ranks
      OwnedPayload& next = *of_rank[position];
      if (next.c()->kind == PENSTOCK_PAYLOAD_ABSENT) continue;  // counts as zeros
      total->c()->kind = next.c()->kind;
      add_section(section, next.section(s), wide);
    }
    auto* bits = static_cast<uint16_t*>(section.data);
    for (uint64_t e = 0; e < section.count; ++e) {
      if (section.dtype == PENSTOCK_FLOAT16) bits[e] = to_float16(wide[e]);
      if (section.dtype == PENSTOCK_BFLOAT16) bits[e] = to_bfloat16(wide[e]);
    }
  }
  return total;
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

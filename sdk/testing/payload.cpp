// See payload.hpp.
#include <kernels/convert.hpp>
#include <penstock/views.hpp>
#include <stdexcept>
#include <testing/payload.hpp>

namespace penstock::test {
namespace {

PayloadPointer filled(const std::vector<penstock_section_bound>& bounds, uint32_t kind,
                      int32_t rank, const std::vector<const void*>& contents) {
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

template <typename T>
void reduce_as(uint32_t reduction, void* total, const void* next, uint64_t count) {
  auto* a = static_cast<T*>(total);
  const auto* b = static_cast<const T*>(next);
  for (uint64_t e = 0; e < count; ++e) {
    if (reduction == PENSTOCK_REDUCE_MIN)
      a[e] = std::min(a[e], b[e]);
    else if (reduction == PENSTOCK_REDUCE_MAX)
      a[e] = std::max(a[e], b[e]);
    else if (reduction == PENSTOCK_REDUCE_PRODUCT)
      a[e] = static_cast<T>(a[e] * b[e]);
    else
      a[e] = static_cast<T>(a[e] + b[e]);
  }
}

void reduce_into(uint32_t dtype, uint32_t reduction, void* total, const void* next,
                 uint64_t count) {
  switch (dtype) {
    case PENSTOCK_FLOAT32:
      return reduce_as<float>(reduction, total, next, count);
    case PENSTOCK_FLOAT64:
      return reduce_as<double>(reduction, total, next, count);
    case PENSTOCK_INT8:
      return reduce_as<int8_t>(reduction, total, next, count);
    case PENSTOCK_UINT8:
      return reduce_as<uint8_t>(reduction, total, next, count);
    case PENSTOCK_INT16:
      return reduce_as<int16_t>(reduction, total, next, count);
    case PENSTOCK_INT32:
      return reduce_as<int32_t>(reduction, total, next, count);
    case PENSTOCK_UINT32:
      return reduce_as<uint32_t>(reduction, total, next, count);
    case PENSTOCK_INT64:
      return reduce_as<int64_t>(reduction, total, next, count);
    case PENSTOCK_UINT64:
      return reduce_as<uint64_t>(reduction, total, next, count);
    default:
      throw std::runtime_error(sdk::text("a summed section of dtype ", dtype, " cannot be added"));
  }
}

// The values of a 16-bit section as float32, the type in which they are added.
std::vector<float> widened(const penstock_section& section) {
  std::vector<float> wide(section.count);
  const auto* bits = static_cast<const uint16_t*>(section.data);
  if (section.dtype == PENSTOCK_FLOAT16)
    kernels::halves_to_floats(bits, wide.data(), section.count);
  else
    kernels::bfloat16s_to_floats(bits, wide.data(), section.count);
  return wide;
}

void reduce_halves(uint32_t reduction, penstock_section& total,
                   const std::vector<const penstock_section*>& all) {
  std::vector<float> wide = widened(*all[0]);
  for (uint64_t r = 1; r < all.size(); ++r)
    reduce_as<float>(reduction, wide.data(), widened(*all[r]).data(), wide.size());
  auto* bits = static_cast<uint16_t*>(total.data);
  if (total.dtype == PENSTOCK_FLOAT16)
    kernels::floats_to_halves(wide.data(), bits, wide.size());
  else
    kernels::floats_to_bfloat16s(wide.data(), bits, wide.size());
}

}  // namespace

OwnedPayload::OwnedPayload(const std::vector<penstock_section_bound>& bounds, int32_t rank)
    : sections_(bounds.size()) {
  for (uint64_t s = 0; s < bounds.size(); ++s) {
    bytes_.emplace_back(bounds[s].capacity * sdk::dtype_bytes(bounds[s].dtype));
    penstock_section& section = sections_[s];
    section.struct_size = sizeof section;
    section.data = bytes_.back().data();
    section.count = UINT64_MAX;  // encode must set it
    section.capacity = bounds[s].capacity;
    section.role = bounds[s].role;
    section.dtype = bounds[s].dtype;
    pointers_.push_back(&section);
  }
  payload_.struct_size = sizeof payload_;
  payload_.sections = pointers_.data();
  payload_.n_sections = pointers_.size();
  payload_.kind = 0;  // encode must set it
  payload_.rank = rank;
}

void OwnedPayload::make_absent() {
  payload_.kind = PENSTOCK_PAYLOAD_ABSENT;
  for (penstock_section& section : sections_) section.count = 0;
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

PayloadPointer received(OwnedPayload& sent) {
  std::vector<penstock_section_bound> bounds;
  std::vector<const void*> contents;
  for (uint64_t s = 0; s < sent.n_sections(); ++s) {
    const penstock_section& from = sent.section(s);
    bounds.push_back(bound(from.role, from.dtype, std::min(from.count, from.capacity)));
    contents.push_back(from.data);
  }
  PayloadPointer copy = filled(bounds, sent.c()->kind, sent.c()->rank, contents);
  for (uint64_t s = 0; s < sent.n_sections(); ++s)
    copy->section(s).capacity = sent.section(s).capacity;  // the planned capacity
  return copy;
}

PayloadPointer reduced(const PlannedRound& round, const std::vector<OwnedPayload*>& of_ranks) {
  auto total = std::make_unique<OwnedPayload>(round.sections, -1);
  total->c()->kind = PENSTOCK_PAYLOAD_ABSENT;
  for (uint64_t s = 0; s < total->n_sections(); ++s) {
    penstock_section& section = total->section(s);
    section.count = section.capacity;
    std::vector<const penstock_section*> all;
    for (OwnedPayload* next : of_ranks) {
      if (next->is_absent()) continue;
      total->c()->kind = next->c()->kind;
      all.push_back(&next->section(s));
    }
    if (all.empty() || section.count == 0) continue;
    if (section.dtype == PENSTOCK_FLOAT16 || section.dtype == PENSTOCK_BFLOAT16) {
      reduce_halves(round.c.reduction, section, all);
      continue;
    }
    std::memcpy(section.data, all[0]->data, section.count * sdk::dtype_bytes(section.dtype));
    for (uint64_t r = 1; r < all.size(); ++r)
      reduce_into(section.dtype, round.c.reduction, section.data, all[r]->data, section.count);
  }
  return total;
}

}  // namespace penstock::test

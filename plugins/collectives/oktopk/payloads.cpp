// See payloads.hpp.
#include "payloads.hpp"

#include <penstock/error.hpp>

namespace penstock::oktopk {

namespace {

// The indices and values of a sparse payload.
struct Entries {
  penstock_section& indices;
  penstock_section& values;
};

Entries entries_of(const penstock_item& item, const penstock_payload& payload) {
  const auto wrong = [&](const auto&... parts) {
    return sdk::invalid_argument("collective/oktopk: the payload of gradient '",
                                 sdk::view(item.name), "' ", parts...);
  };
  if (payload.n_sections != 2)
    throw wrong("has ", payload.n_sections, " sections, expected indices and values");
  Entries entries{*payload.sections[0], *payload.sections[1]};
  if (entries.indices.dtype != PENSTOCK_UINT32 || entries.values.dtype != PENSTOCK_FLOAT32)
    throw wrong("has dtypes ", entries.indices.dtype, " and ", entries.values.dtype,
                ", expected uint32 indices and float32 values");
  return entries;
}

}  // namespace

uint64_t count_elements(const penstock_message& message) {
  uint64_t total = 0;
  for (uint64_t i = 0; i < message.n_items; ++i) total += message.items[i]->numel;
  if (total > ~uint32_t(0))
    throw sdk::invalid_argument("collective/oktopk: a message of ", total,
                                " elements; at most 2^32 - 1 are possible, use smaller buckets");
  return total;
}

uint64_t count_capacity(const penstock_message& message) {
  uint64_t total = 0;
  for (uint64_t i = 0; i < message.n_items; ++i)
    total += entries_of(*message.items[i], *message.payloads[i]).indices.capacity;
  return total;
}

void read_payloads(const penstock_message& message, std::vector<Pair>& pairs) {
  uint64_t first = 0;
  for (uint64_t i = 0; i < message.n_items; ++i) {
    const penstock_item& item = *message.items[i];
    const penstock_payload& payload = *message.payloads[i];
    if (payload.kind != PENSTOCK_PAYLOAD_ABSENT) {
      const auto wrong = [&](const auto&... parts) {
        return sdk::invalid_argument("collective/oktopk: the payload of gradient '",
                                     sdk::view(item.name), "' ", parts...);
      };
      if (payload.kind != PENSTOCK_PAYLOAD_SPARSE)
        throw wrong("is of kind ", payload.kind, ", expected sparse or absent");
      const Entries entries = entries_of(item, payload);
      const uint64_t count = entries.indices.count;
      if (count != entries.values.count || count > entries.indices.capacity)
        throw wrong("has ", count, " indices and ", entries.values.count, " values in room for ",
                    entries.indices.capacity);
      const auto* indices = static_cast<const uint32_t*>(entries.indices.data);
      const auto* values = static_cast<const float*>(entries.values.data);
      for (uint64_t e = 0; e < count; ++e) {
        if (indices[e] >= item.numel || (e > 0 && indices[e] <= indices[e - 1]))
          throw wrong("has index ", indices[e], " at ", e, ", which does not ascend below ",
                      item.numel);
        pairs.push_back({static_cast<uint32_t>(first + indices[e]), values[e]});
      }
    }
    first += item.numel;
  }
}

void write_payloads(const penstock_message& message, std::span<const Pair> pairs,
                    penstock_payload* const* payloads, int32_t rank) {
  uint64_t first = 0;
  size_t next = 0;
  for (uint64_t i = 0; i < message.n_items; ++i) {
    const penstock_item& item = *message.items[i];
    const Entries entries = entries_of(item, *payloads[i]);
    const uint64_t room = std::min(entries.indices.capacity, entries.values.capacity);
    auto* indices = static_cast<uint32_t*>(entries.indices.data);
    auto* values = static_cast<float*>(entries.values.data);
    uint64_t count = 0;
    for (; next < pairs.size() && pairs[next].position < first + item.numel; ++next, ++count) {
      if (count == room)
        throw sdk::invalid_payload("collective/oktopk: more than the ", room,
                                   " entries planned came for gradient '", sdk::view(item.name),
                                   "'");
      indices[count] = static_cast<uint32_t>(pairs[next].position - first);
      values[count] = pairs[next].value;
    }
    entries.indices.count = entries.values.count = count;
    payloads[i]->kind = PENSTOCK_PAYLOAD_SPARSE;
    payloads[i]->rank = rank;
    first += item.numel;
  }
}

}  // namespace penstock::oktopk

#include "core/bucket/wire.hpp"

#include "core/bucket/coded_indices.hpp"

#include <cstring>

namespace penstock {

Status bad_payload(const BucketRun& bucket, const MessageRun& message, uint32_t rank,
                   const ItemRun* item, std::string_view what) {
  return invalid_payload(
      "set '{}', {}: the message of rank {}{} {}", bucket.context.name, bucket.label,
      message.coding->links->group.ranks()[rank],
      item != nullptr ? fmt::format(" for gradient '{}'", item->gradient->name) : std::string(),
      what);
}

uint64_t header_bytes(const Coding& coding, const std::vector<size_t>& items, uint32_t round) {
  uint64_t bytes = sizeof(uint32_t);
  for (size_t position : items)
    bytes += sizeof(uint32_t) * (1 + coding.items[position].rounds[round].sections.size());
  return round_up(bytes);
}

void HeaderWriter::put(uint32_t word) {
  std::memcpy(cursor_, &word, sizeof word);
  cursor_ += sizeof word;
}

void HeaderWriter::item(PayloadStorage& payload) {
  put(payload.c()->kind);
  for (size_t s = 0; s < payload.size(); ++s) put(static_cast<uint32_t>(payload.section(s).count));
}

uint32_t HeaderReader::take() {
  uint32_t word;
  std::memcpy(&word, cursor_, sizeof word);
  cursor_ += sizeof word;
  return word;
}

Status HeaderReader::read(const BucketRun& bucket, ItemRun& item, uint32_t round, uint32_t rank) {
  const RoundNeed& need = item.rounds[round];
  PayloadStorage& payload = item.arrival(round, rank);
  const uint32_t kind = take();
  if (kind < PENSTOCK_PAYLOAD_ABSENT || kind > PENSTOCK_PAYLOAD_CODED)
    return bad_payload(bucket, message_, rank, &item,
                       fmt::format("is of the unknown kind {}", kind));
  payload.c()->kind = kind;
  for (size_t s = 0; s < need.sections.size(); ++s) {
    const uint32_t count = take();
    if (count > need.sections[s].capacity)
      return bad_payload(bucket, message_, rank, &item,
                         fmt::format("claims {} elements in section {}, at most {} are legal",
                                     count, s, need.sections[s].capacity));
    payload.section(s).count = count;
  }
  if (kind == PENSTOCK_PAYLOAD_SPARSE && need.sections.size() >= 2 &&
      payload.section(0).count != payload.section(1).count)
    return bad_payload(bucket, message_, rank, &item,
                       "has different numbers of indices and values");
  return {};
}

uint64_t sections_capacity(const Coding& coding, const std::vector<size_t>& items, uint32_t round) {
  uint64_t bytes = 0;
  for (size_t position : items)
    for (const SectionNeed& section : coding.items[position].rounds[round].sections)
      bytes += round_up(section.bytes());
  return bytes;
}

uint64_t gathered_capacity(const Coding& coding, const std::vector<size_t>& items, uint32_t round) {
  uint64_t bytes = header_bytes(coding, items, round);
  for (size_t position : items)
    for (const SectionNeed& section : coding.items[position].rounds[round].sections)
      bytes += room_of(coding.items[position], section);
  return bytes;
}

}  // namespace penstock

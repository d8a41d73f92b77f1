#include "core/bucket/wire.hpp"

#include <cstring>

namespace penstock {
namespace {

// One rank's part, `bytes` long.
Status read_part(BucketRun& bucket, const MessageRun& message, uint32_t round, uint32_t rank,
                 std::byte* part, uint64_t bytes) {
  Coding& coding = *message.coding;
  const std::vector<size_t>& items = message.coming_from(rank);
  const uint64_t header = header_bytes(coding, items, round);
  if (bytes < header)
    return bad_payload(bucket, message, rank, nullptr,
                       fmt::format("has {} bytes, its header alone takes {}", bytes, header));
  HeaderReader reader(message, part);
  const uint32_t flags = reader.flags();
  PENSTOCK_TRY(check_past(bucket, message, rank, flags));
  if ((flags & kWireNonfinite) != 0) {
    bucket.is_void = true;
    if (coding.alone) coding.failed_owners[rank] = true;
  }
  uint64_t offset = header;
  for (size_t position : items) {
    ItemRun& item = coding.items[position];
    PENSTOCK_TRY(reader.read(bucket, item, round, rank));
    PayloadStorage& payload = item.arrival(round, rank);
    for (size_t s = 0; s < payload.size(); ++s) {
      penstock_section& section = payload.section(s);
      const uint64_t length = round_up(section.count * dtype_bytes(section.dtype));
      if (length > bytes - offset)
        return bad_payload(bucket, message, rank, &item,
                           fmt::format("ends in the middle of section {}", s));
      section.data = part + offset;
      offset += length;
    }
    PENSTOCK_TRY(item.place().arrived(bucket, message, round, rank, item));
  }
  return {};
}

}  // namespace

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
  return header_bytes(coding, items, round) + sections_capacity(coding, items, round);
}

void place_gathered(MessageRun& message, uint32_t round) {
  Coding& coding = *message.coding;
  for (uint32_t part = 0; part < message.n_parts(); ++part) {
    const std::vector<size_t>& items = message.sent_to(part);
    const uint64_t header = message.is_announced() ? 0 : header_bytes(coding, items, round);
    std::byte* cursor = message.send.data() + message.send_offsets[part] + header;
    for (size_t position : items) {
      ItemRun& item = coding.items[position];
      for (size_t s = 0; s < item.rounds[round].sections.size(); ++s) {
        penstock_section& section = item.own[round].section(s);
        item.place().point(section, message.send, cursor);
        section.on_host = nullptr;  // not yet
        section.count = 0;
        cursor += round_up(item.rounds[round].sections[s].bytes());
      }
    }
  }
}

namespace {

// Returns where the part ends. It begins at or before the place where encode has left it.
std::byte* close_part(const MessageRun& message, const std::vector<size_t>& items, uint32_t round,
                      std::byte* part) {
  Coding& coding = *message.coding;
  HeaderWriter writer(part);
  writer.flags(wire_word(*message.bucket, coding.nonfinite ? kWireNonfinite : 0));
  std::byte* target = part + header_bytes(coding, items, round);
  std::memset(target - 4, 0, 4);  // where the header ends in the middle of 8 bytes
  for (size_t position : items) {
    const WorkPlace& place = coding.items[position].place();
    PayloadStorage& payload = coding.items[position].own[round];
    writer.item(payload);
    for (size_t s = 0; s < payload.size(); ++s) {
      penstock_section& section = payload.section(s);
      const uint64_t bytes = section.count * dtype_bytes(section.dtype);
      const void* source = place.sent(message, section);
      if (source != target && bytes != 0) std::memmove(target, source, bytes);
      place.moved(section, target);
      std::memset(target + bytes, 0, round_up(bytes) - bytes);
      target += round_up(bytes);
    }
  }
  return target;
}

}  // namespace

void close_gathered(MessageRun& message, uint32_t round) {
  const bool exact = (message.message.flags & PENSTOCK_MESSAGE_EXACT_COUNTS) != 0;
  std::byte* part = message.send.data();
  for (uint32_t number = 0; number < message.n_parts(); ++number) {
    if (exact) part = message.send.data() + message.send_offsets[number];
    std::byte* end = close_part(message, message.sent_to(number), round, part);
    if (!exact) message.send_counts[number] = static_cast<uint64_t>(end - part);
    part = end;
  }
  message.message.count = exact ? message.send.bytes() : part - message.send.data();
  for (uint32_t rank = 0; rank < message.group_size(); ++rank)
    message.receive_counts[rank] = message.room_for[rank];
}

Status read_gathered(BucketRun& bucket, MessageRun& message, uint32_t round) {
  for (uint32_t rank = 0; rank < message.group_size(); ++rank)
    PENSTOCK_TRY(read_part(bucket, message, round, rank,
                           message.receive.data() + message.receive_offsets[rank],
                           message.receive_counts[rank]));
  return {};
}

}  // namespace penstock

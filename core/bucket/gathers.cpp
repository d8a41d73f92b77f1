#include "core/bucket/gathers.hpp"

#include "core/bucket/wire.hpp"

#include <algorithm>
#include <cstring>

namespace penstock {
namespace {

// Makes the buffers for the payloads that go to each rank and come from each rank.
Status make_gather_buffers(Coding& coding, GatherMessage& message, uint32_t round,
                           uint32_t ranks_at_once) {
  const auto capacity = message.is_announced() ? sections_capacity : gathered_capacity;
  const auto uncoded = [&](const std::vector<size_t>& items) {
    return message.is_announced() ? 0 : uncoded_capacity(coding, items, round);
  };
  uint64_t bytes = 0, behind = 0;
  for (uint32_t part = 0; part < message.n_parts(); ++part) {
    message.send_offsets.push_back(bytes);
    message.send_counts.push_back(capacity(coding, message.sent_to(part), round));
    bytes += message.send_counts.back();
    behind += uncoded(message.sent_to(part));
  }
  message.uncoded_offset = bytes;
  PENSTOCK_ASSIGN(message.send, memory_of(message, bytes + behind));
  uint64_t room = 0;
  const auto add_places = [&](std::vector<uint64_t>& offsets, const auto& bytes_from) {
    for (uint32_t rank = 0; rank < message.group_size(); ++rank) {
      const bool shares = rank >= ranks_at_once;
      offsets.push_back(shares ? offsets[rank - ranks_at_once] : room);
      if (!shares) room += bytes_from(rank);
    }
  };
  for (uint32_t rank = 0; rank < message.group_size(); ++rank)
    message.room_for.push_back(capacity(coding, message.coming_from(rank), round));
  message.receive_counts = message.room_for;
  add_places(message.receive_offsets, [&](uint32_t rank) { return message.room_for[rank]; });
  add_places(message.decoded_offsets,
             [&](uint32_t rank) { return uncoded(message.coming_from(rank)); });
  PENSTOCK_ASSIGN(message.receive, memory_of(message, room));
  penstock_message& c = message.message;
  c.send = message.send.data();
  c.send_counts = message.send_counts.data();
  c.receive = message.receive.data();
  c.receive_counts = message.receive_counts.data();
  c.receive_offsets = message.receive_offsets.data();
  c.count = bytes;
  return {};
}

}  // namespace

Result<std::unique_ptr<GatherMessage>> make_gather(BucketRun& bucket, Leg& leg, uint32_t round,
                                                   std::vector<size_t> items,
                                                   std::vector<std::vector<size_t>> by_owner,
                                                   uint32_t ranks_at_once) {
  Coding& coding = *leg.coding;
  const uint32_t pattern = leg.kind.pattern == PENSTOCK_ALL_TO_ALL ? uint32_t{PENSTOCK_ALL_TO_ALL}
                                                                   : uint32_t{PENSTOCK_ALL_GATHER};
  auto message = make_message<GatherMessage>(bucket, coding, link_of(coding, items, round), pattern,
                                             PENSTOCK_UINT8);
  take_items(*message, std::move(items));
  message->by_owner = std::move(by_owner);
  PENSTOCK_TRY(make_gather_buffers(coding, *message, round, ranks_at_once));
  const bool exact =
      std::all_of(message->items.begin(), message->items.end(), [&](size_t position) {
        const ItemRun& item = coding.items[position];
        const auto& sections = item.rounds[round].sections;
        for (size_t s = 0; s < sections.size(); ++s)
          if (!sections[s].exact || message->codes(item, round, s)) return false;
        return true;
      });
  const bool is_announced = message->is_announced();
  if (exact || is_announced) message->message.flags |= PENSTOCK_MESSAGE_EXACT_COUNTS;
  if (is_announced && !exact) {
    PENSTOCK_ASSIGN(message->packed, memory_of(*message, message->send.bytes()));
  }
  return message;
}

Status lay_out_gather(BucketRun& bucket, Leg& leg, uint32_t round, std::vector<size_t> items,
                      std::vector<std::vector<size_t>> by_owner) {
  PENSTOCK_ASSIGN(auto message, make_gather(bucket, leg, round, std::move(items),
                                            std::move(by_owner), leg.coding->links->group.size()));
  leg.messages[round].push_back(std::move(message));
  return {};
}

std::byte* SectionPlaces::next(const penstock_section& section) {
  std::byte* const place = at_;
  const uint64_t count = exact_ ? section.capacity : section.count;
  at_ += round_up(count * dtype_bytes(section.dtype));
  return place;
}

bool GatherMessage::codes(const ItemRun& item, uint32_t round, size_t section) const {
  return !is_announced() && item.rounds[round].sections[section].is_coded(item.range.numel);
}

// ---- before it goes ----

// Sections that travel uncoded lie together, after room for all coded sections. So close_part never
// overwrites a section that it has not moved yet.
Status GatherMessage::before_encode(uint32_t round) {
  std::byte* uncoded = send.data() + uncoded_offset;
  for (uint32_t part = 0; part < n_parts(); ++part) {
    const std::vector<size_t>& sent = sent_to(part);
    std::byte* cursor = send.data() + send_offsets[part];
    if (!is_announced()) cursor += header_bytes(*coding, sent, round);
    each_section(sent, round, [&](ItemRun& item, size_t s) {
      if (codes(item, round, s)) cursor += room_of(item, item.rounds[round].sections[s]);
    });
    each_section(sent, round, [&](ItemRun& item, size_t s) {
      penstock_section& section = item.own[round].section(s);
      std::byte*& next = codes(item, round, s) ? uncoded : cursor;
      item.place().point(section, send, next);
      section.on_host = nullptr;  // not yet
      section.count = 0;
      next += round_up(item.rounds[round].sections[s].bytes());
    });
  }
  return {};
}

// Returns the end of the section. Own sections stay readable until the end of the step: coded
// sections where encode has written them, other sections in the message.
std::byte* GatherMessage::close_section(ItemRun& item, uint32_t round, size_t s,
                                        std::byte* target) {
  penstock_section& section = item.own[round].section(s);
  const uint64_t bytes = section.count * dtype_bytes(section.dtype);
  const void* const source = item.place().sent(*this, section);
  if (codes(item, round, s)) {
    item.place().moved(section, static_cast<std::byte*>(const_cast<void*>(source)));
    return write_coded(item, {static_cast<const uint32_t*>(source), section.count}, target,
                       bucket->context.coding_path);
  }
  if (source != target && bytes != 0) std::memmove(target, source, bytes);
  item.place().moved(section, target);
  return target + bytes;
}

// Returns the end of the part. The part begins at or before the place where encode has written it.
std::byte* GatherMessage::close_part(const std::vector<size_t>& items, uint32_t round,
                                     std::byte* part) {
  HeaderWriter writer(part);
  writer.flags(wire_word(*bucket, coding->nonfinite ? kWireNonfinite : 0));
  std::byte* target = part + header_bytes(*coding, items, round);
  std::memset(target - 4, 0, 4);  // the header may end in the middle of 8 bytes
  for (const size_t position : items) {
    ItemRun& item = coding->items[position];
    writer.item(item.own[round]);
    for (size_t s = 0; s < item.own[round].size(); ++s) {
      std::byte* const end = close_section(item, round, s, target);
      target += round_up(static_cast<uint64_t>(end - target));
      std::memset(end, 0, static_cast<uint64_t>(target - end));
    }
  }
  return target;
}

Status GatherMessage::prepare(Leg&, uint32_t round) {
  const bool exact = (message.flags & PENSTOCK_MESSAGE_EXACT_COUNTS) != 0;
  std::byte* part = send.data();
  for (uint32_t number = 0; number < n_parts(); ++number) {
    if (exact) part = send.data() + send_offsets[number];
    std::byte* end = close_part(sent_to(number), round, part);
    if (!exact) send_counts[number] = static_cast<uint64_t>(end - part);
    part = end;
  }
  message.count = exact ? send.bytes() : static_cast<uint64_t>(part - send.data());
  std::copy(room_for.begin(), room_for.end(), receive_counts.begin());
  return {};
}

Status GatherMessage::pack(uint32_t round) {
  message.send = send.data();
  message.count = send.bytes();
  if (has_fixed_parts()) return {};
  SectionPlaces places(packed.data(), false);
  place->begin_copies(*bucket);
  for (const size_t position : items) {
    PayloadStorage& own = coding->items[position].own[round];
    for (size_t s = 0; s < own.size(); ++s) {
      const penstock_section& section = own.section(s);
      // Copies whole words: after a section there is room for the surplus bytes of its last word.
      const uint64_t bytes = section.count * dtype_bytes(section.dtype);
      constexpr uint64_t kWord = sizeof(uint32_t);
      place->copy(*bucket, section.data, places.next(section), (bytes + kWord - 1) / kWord, kWord);
    }
  }
  PENSTOCK_TRY(place->end_copies(*bucket));
  message.send = packed.data();
  message.count = static_cast<uint64_t>(places.end() - packed.data());
  return {};
}

// ---- when it has come ----

Status GatherMessage::read_part(uint32_t round, uint32_t rank) {
  std::byte* const part = receive.data() + receive_offsets[rank];
  const uint64_t bytes = receive_counts[rank];
  const std::vector<size_t>& coming = coming_from(rank);
  const uint64_t header = header_bytes(*coding, coming, round);
  if (bytes < header)
    return bad_payload(*bucket, *this, rank, nullptr,
                       fmt::format("has {} bytes, its header alone takes {}", bytes, header));
  HeaderReader reader(*this, part);
  const uint32_t flags = reader.flags();
  PENSTOCK_TRY(check_past(*bucket, *this, rank, flags));
  if ((flags & kWireNonfinite) != 0) {
    bucket->is_void = true;
    if (coding->of_sums) coding->failed_owners[rank] = true;
  }
  uint64_t offset = header;
  std::byte* decoded = receive.data() + decoded_offsets[rank];
  for (const size_t position : coming) {
    ItemRun& item = coding->items[position];
    item.arrival(round, rank).c()->rank = static_cast<int32_t>(rank);  // ranks may share a payload
    PENSTOCK_TRY(reader.read(*bucket, item, round, rank));
    PENSTOCK_TRY(read_sections(item, round, rank, offset, decoded));
    PENSTOCK_TRY(item.place().arrived(*bucket, *this, round, rank, item));
  }
  return {};
}

// The indices that this rank has coded, as the host sees them; null if their number is not `count`.
void* GatherMessage::own_indices(ItemRun& item, uint32_t round, size_t s, uint64_t count) const {
  if (count == 0 || !item.encodes || item.own[round].section(s).count != count) return nullptr;
  return const_cast<void*>(item.place().sent(*this, item.own[round].section(s)));
}

Status GatherMessage::read_sections(ItemRun& item, uint32_t round, uint32_t rank, uint64_t& offset,
                                    std::byte*& decoded) {
  std::byte* const part = receive.data() + receive_offsets[rank];
  const uint64_t bytes = receive_counts[rank];
  PayloadStorage& payload = item.arrival(round, rank);
  for (size_t s = 0; s < payload.size(); ++s) {
    penstock_section& section = payload.section(s);
    uint64_t length = section.count * dtype_bytes(section.dtype);
    section.data = part + offset;
    if (codes(item, round, s)) {
      void* const own = rank == group_rank() ? own_indices(item, round, s, section.count) : nullptr;
      section.data = own != nullptr ? own : decoded;
      const std::string refused =
          read_coded(item, {part + offset, bytes - offset}, section.count,
                     own != nullptr ? nullptr : reinterpret_cast<uint32_t*>(decoded), length,
                     bucket->context.coding_path);
      decoded += round_up(item.rounds[round].sections[s].bytes());
      if (!refused.empty())
        return bad_payload(*bucket, *this, rank, &item,
                           fmt::format("has a section {} that {}", s, refused));
    }
    if (round_up(length) > bytes - offset)
      return bad_payload(*bucket, *this, rank, &item,
                         fmt::format("ends in the middle of section {}", s));
    offset += round_up(length);
  }
  return {};
}

Status GatherMessage::read(const Leg&, uint32_t round) {
  return is_announced() ? Status() : read_ranks(round, 0, group_size());
}

Status GatherMessage::read_ranks(uint32_t round, uint32_t first, uint32_t end) {
  for (uint32_t rank = first; rank < end; ++rank) PENSTOCK_TRY(read_part(round, rank));
  return {};
}

}  // namespace penstock

#include "core/bucket/announcement.hpp"

#include "core/bucket/exchange.hpp"
#include "core/bucket/layout.hpp"
#include "core/bucket/messages.hpp"
#include "core/bucket/wire.hpp"
#include "core/comm/channel.hpp"

namespace penstock {
namespace {

constexpr uint64_t kTicketBytes = sizeof(uint64_t);

// The flags of this rank for everything that it sends in a leg.
uint32_t flags_of(const BucketRun& bucket, const Leg& leg) {
  const Coding& coding = *leg.coding;
  if (!leg.kind.is_dense()) return coding.nonfinite ? kWireNonfinite : 0;
  if (!leg.tells) return bucket.nonfinite ? kWireNonfinite : 0;
  if (!bucket.is_void) return 0;
  return kWireNonfinite | (coding.compensated ? 0 : kWireNotTaken);
}

void take_flags(BucketRun& bucket, const Leg& leg, uint32_t flags) {
  const bool is_of_sums = leg.kind.is_dense() && !leg.tells;
  if ((flags & kWireNonfinite) != 0) (is_of_sums ? leg.coding->nonfinite : bucket.is_void) = true;
  if ((flags & kWireNotTaken) != 0) leg.coding->compensated = false;
}

// Reads one rank's part of the headers, then computes where its payloads will lie.
Status read_part(BucketRun& bucket, Leg& leg, uint32_t round, uint32_t rank) {
  const Announcement& announcement = leg.announcements[round];
  const MessageRun& header = *announcement.header;
  HeaderReader reader(header, header.receive.data() + rank * header.message.count);
  const uint32_t flags = reader.flags();
  PENSTOCK_TRY(check_past(bucket, header, rank, flags));
  take_flags(bucket, leg, flags);
  if (announcement.gathered == nullptr) return {};
  GatherMessage& message = *announcement.gathered;
  const bool is_own = rank == message.group_rank();
  SectionPlaces places(message.receive.data() + message.receive_offsets[rank],
                       message.has_fixed_parts());
  for (const size_t position : message.items) {
    ItemRun& item = leg.coding->items[position];
    PENSTOCK_TRY(reader.read(bucket, item, round, rank));
    PayloadStorage& payload = item.arrival(round, rank);
    for (size_t s = 0; s < payload.size(); ++s) {
      penstock_section& section = payload.section(s);
      std::byte* const place = places.next(section);
      section.data = is_own ? item.own[round].section(s).data : place;
      section.on_host = nullptr;
    }
  }
  message.receive_counts[rank] =
      static_cast<uint64_t>(places.end() - message.receive.data() - message.receive_offsets[rank]);
  return {};
}

}  // namespace

void lay_out_announcement(BucketRun& bucket, Leg& leg, uint32_t round) {
  Announcement& announcement = leg.announcements[round];
  for (const auto& message : leg.messages[round]) {
    if (!message->is_announced()) continue;
    message->has_own_stage = true;
    ++announcement.n_messages;
    if (!message->joins()) announcement.gathered = static_cast<GatherMessage*>(message.get());
  }
  if (announcement.n_messages == 0) return;
  Coding& coding = *leg.coding;
  Link& link = bucket.context.at(leg.kind.level).transport;
  auto header =
      make_message<HeaderMessage>(bucket, coding, link, PENSTOCK_ALL_GATHER, PENSTOCK_UINT8);
  const uint64_t bytes = header_bytes(
      coding,
      announcement.gathered != nullptr ? announcement.gathered->items : std::vector<size_t>(),
      round);
  const uint32_t size = header->group_size();
  header->send = Buffer(bytes);
  header->receive = Buffer(bytes * size);
  for (uint32_t rank = 0; rank < size; ++rank) {
    header->receive_counts.push_back(bytes);
    header->receive_offsets.push_back(rank * bytes);
  }
  penstock_message& c = header->message;
  c.send = header->send.data();
  c.count = bytes;
  c.receive = header->receive.data();
  c.receive_counts = header->receive_counts.data();
  c.receive_offsets = header->receive_offsets.data();
  c.flags |= PENSTOCK_MESSAGE_EXACT_COUNTS;

  auto ticket =
      make_message<TicketMessage>(bucket, coding, link, PENSTOCK_BROADCAST, PENSTOCK_UINT8);
  ticket->send = Buffer(kTicketBytes);
  ticket->receive = Buffer(kTicketBytes);
  ticket->message.send = ticket->send.data();
  ticket->message.receive = ticket->receive.data();
  ticket->message.count = kTicketBytes;
  announcement.header = header.get();
  announcement.ticket = ticket.get();
  ticket->has_own_stage = true;
  // Listed in the order of sending, as an ordered channel requires: the ticket is sent after all
  // messages that are sent with the header.
  auto& messages = leg.messages[round];
  messages.insert(messages.begin(), std::move(header));
  messages.push_back(std::move(ticket));
}

Status HeaderMessage::prepare(Leg& leg, uint32_t round) {
  const Announcement& announcement = leg.announcements[round];
  HeaderWriter writer(send.data());
  writer.flags(wire_word(*bucket, flags_of(*bucket, leg)));
  if (announcement.gathered == nullptr) return {};
  for (const size_t position : announcement.gathered->items)
    writer.item(coding->items[position].own[round]);
  return {};
}

Status ReadHeaders::begin(BucketRun& bucket) {
  for (uint32_t rank = 0; rank < leg_.announcements[round_].header->group_size(); ++rank)
    PENSTOCK_TRY(read_part(bucket, leg_, round_, rank));
  return {};
}

Status Ticket::begin(BucketRun& bucket) {
  const Announcement& announcement = leg_.announcements[round_];
  MessageRun& ticket = *announcement.ticket;
  if (!is_taken(leg_)) {
    skip(bucket, ticket);
    ticket.sent = true;  // so that GiveBack does not skip it again
    return {};
  }
  if (ticket.group_rank() == 0)
    *ticket.send.as<uint64_t>() =
        bucket.context.on_device.between->next_ticket.fetch_add(announcement.n_messages);
  bucket.begin_transfers(1);
  submit(bucket, ticket);
  return {};
}

Status Send::begin(BucketRun& bucket) {
  const Announcement& announcement = leg_.announcements[round_];
  const WorkMemory& memory = announcement.ticket->group_rank() == 0 ? announcement.ticket->send
                                                                    : announcement.ticket->receive;
  uint64_t ticket = *memory.as<uint64_t>();
  bucket.begin_transfers(announcement.n_messages);
  for (auto& message : leg_.messages[round_]) {
    if (!message->is_announced()) continue;
    const uint64_t bytes = bytes_handed_over(message->message, message->group_size());
    bucket.exchange_bytes += bytes;
    bucket.context.on_device.traffic.add(bytes,
                                         bytes_moved(*message->link->channel, message->message));
    submit_by_ticket(bucket, *message, ticket++);
  }
  return {};
}

}  // namespace penstock

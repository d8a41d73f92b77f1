// See ticket.hpp.
#include "ticket.hpp"

namespace penstock::collectives {

namespace {

constexpr size_t kFirstTickets = 256;

uint64_t match_of(const Ticket& ticket, Kind kind) {
  uint64_t stage = 0;
  switch (kind) {
    case Kind::kOut:
    case Kind::kIn:
      stage = 1;
      break;
    case Kind::kResultOut:
    case Kind::kResultIn:
      stage = 2;
      break;
    case Kind::kGrantOut:
    case Kind::kGrantIn:
      stage = 3;
      break;
    default:
      break;
  }
  return ticket.message.tag * 8 + stage;
}

}  // namespace

void Stream::set(char* first, uint64_t n_bytes, uint64_t n_lead, uint64_t segment_bytes) {
  data = first;
  bytes = n_bytes;
  lead = std::min(n_lead, n_bytes);
  segment = segment_bytes;
  posted = 0;
  done = 0;
  later = 0;
  n_segments = bytes == 0 ? 0 : std::max<uint64_t>(1, (bytes - lead + segment - 1) / segment);
}

void Stream::finish(uint64_t s) {
  later |= uint32_t(1) << (s - done);
  for (; (later & 1) != 0; later >>= 1) ++done;
}

// Allocates all buffers whose size depends on the channel, so that a ticket that was not used since
// the channel grew does not allocate on its first use.
Ticket::Ticket(const Channel& channel) : peers(channel.size), sources(channel.size) {
  openings_out.resize(channel.size * channel.slot_bytes());
  openings_in.resize(channel.size * channel.slot_bytes());
}

bool Ticket::finished() const {
  if (n_opened != n_expected || n_requests != 0 || own_copied != own_bytes) return false;
  for (const Peer& peer : peers)
    if (!peer.out.complete() || !peer.in.complete() || !peer.result_out.complete() ||
        !peer.result_in.complete())
      return false;
  return share.complete();
}

// The number of messages in flight varies from step to step: the number of tickets doubles, so that
// there are soon enough tickets.
Ticket& take_ticket(Channel& channel) {
  if (channel.free.empty()) {
    const size_t n = std::max(kFirstTickets, channel.tickets.size());
    for (size_t i = 0; i < n; ++i) channel.tickets.push_back(std::make_unique<Ticket>(channel));
    channel.free.reserve(channel.tickets.size());
    channel.waiting.reserve(channel.tickets.size());
    for (size_t i = 0; i < n; ++i)
      channel.free.push_back(channel.tickets[channel.tickets.size() - 1 - i].get());
  }
  Ticket* ticket = channel.free.back();
  channel.free.pop_back();
  return *ticket;
}

void send(Ticket& ticket, const Event& event, const void* data) {
  ticket.channel->wire->send(ticket, event, match_of(ticket, event.kind), data);
  ++ticket.n_requests;
}

void receive(Ticket& ticket, const Event& event, void* data) {
  ticket.channel->wire->receive(ticket, event, match_of(ticket, event.kind), data);
  ++ticket.n_requests;
}

}  // namespace penstock::collectives

// See direct.hpp.
#include "direct.hpp"

#include "opening.hpp"

#include <kernels/message.hpp>
#include <kernels/reduce.hpp>

#include <cstring>

namespace penstock::mpi {

namespace {

constexpr uint64_t kCopyBytes = uint64_t(1) << 20;  // of the own part, in one call of progress
constexpr int kReducedSegments = 4;                 // in one call of progress

bool reduces(const Ticket& ticket) {
  return sdk::is_reduction(ticket.message.pattern);
}

// Where segment `s` of what `rank` sends to a reduction is kept until it is added up.
char* ring_place(Ticket& ticket, uint32_t rank, uint64_t s) {
  return ticket.ring.data() + ((s % kWindow) * ticket.channel->size + rank) * ticket.ring_slot;
}

void receive_segment(Ticket& ticket, uint32_t r) {
  const Channel& channel = *ticket.channel;
  Peer& peer = ticket.peers[r];
  const uint64_t s = peer.in.posted++;
  const uint64_t bytes = peer.in.end(s) - peer.in.begin(s);
  char* to;
  if (peer.trash) {
    peer.waste.resize(kSegment);
    to = peer.waste.data();
  } else if (reduces(ticket)) {
    to = ring_place(ticket, r, s) + (s == 0 ? peer.inline_bytes : 0);
  } else {
    to = peer.in.data + peer.in.begin(s);
  }
  check(MPI_Irecv(to, static_cast<int>(bytes), MPI_BYTE, static_cast<int>(r),
                  channel.tag(ticket.message, Kind::kIn), channel.communicator,
                  ticket.requests.add({Kind::kIn, r, s, bytes})),
        "MPI_Irecv");
}

void send_segment(Ticket& ticket, uint32_t r, Stream& stream, Kind kind) {
  const Channel& channel = *ticket.channel;
  const uint64_t s = stream.posted++;
  check(MPI_Isend(stream.data + stream.begin(s), static_cast<int>(stream.end(s) - stream.begin(s)),
                  MPI_BYTE, static_cast<int>(r), channel.tag(ticket.message, kind),
                  channel.communicator, ticket.requests.add({kind, r, s, 0})),
        "MPI_Isend");
}

bool may_post(const Stream& stream) {
  return stream.posted < stream.n_segments && stream.posted - stream.done < kWindow;
}

// Posts whatever may go on, for one peer.
void post(Ticket& ticket, uint32_t r) {
  Peer& peer = ticket.peers[r];
  const Channel& channel = *ticket.channel;
  const bool relays =
      ticket.message.pattern == PENSTOCK_BROADCAST && channel.rank != ticket.message.peer;
  while (may_post(peer.out) && (!relays || ticket.arrived[peer.out.posted] != 0))
    send_segment(ticket, r, peer.out, Kind::kOut);
  // One waste buffer per peer: one segment at a time. A ring place is free again when its segment
  // has been added up.
  while (may_post(peer.in) && (!peer.trash || peer.in.posted == peer.in.done) &&
         (peer.trash || !reduces(ticket) || peer.in.posted < ticket.share.done + kWindow))
    receive_segment(ticket, r);
  while (may_post(peer.result_out) && peer.result_out.posted < ticket.share.done)
    send_segment(ticket, r, peer.result_out, Kind::kResultOut);
  // In place the result overwrites what was sent to its owner: that must have left.
  while (may_post(peer.result_in) && peer.out.complete() && ticket.n_opened == ticket.n_expected) {
    const uint64_t s = peer.result_in.posted++;
    const uint64_t bytes = peer.result_in.end(s) - peer.result_in.begin(s);
    check(MPI_Irecv(peer.result_in.data + peer.result_in.begin(s), static_cast<int>(bytes),
                    MPI_BYTE, static_cast<int>(r), channel.tag(ticket.message, Kind::kResultIn),
                    channel.communicator, ticket.requests.add({Kind::kResultIn, r, s, bytes})),
          "MPI_Irecv");
  }
}

// A reduction that fails does so on all ranks, since every rank has an opening of every other: no
// results will travel, and what still comes is thrown away.
void give_up_reduction(Ticket& ticket) {
  ticket.share.set(nullptr, 0, 0);
  for (Peer& peer : ticket.peers) {
    peer.trash = true;
    peer.result_out.set(nullptr, 0, 0);
    peer.result_in.set(nullptr, 0, 0);
  }
}

void opened(Ticket& ticket, uint32_t from, uint64_t bytes) {
  take_opening(ticket, from, bytes);
  const bool failed = ticket.failure_code != PENSTOCK_OK;
  if (failed && reduces(ticket)) give_up_reduction(ticket);
  if (ticket.message.pattern != PENSTOCK_BROADCAST) return;
  for (uint32_t r = 0; r < ticket.channel->size; ++r)
    if (ticket.peers[r].sends) send_opening(ticket, r, failed);
}

void handle(Ticket& ticket, const Event& event, uint64_t expected) {
  Peer& peer = ticket.peers[event.peer];
  switch (event.kind) {
    case Kind::kOpeningIn:
      return opened(ticket, event.peer, event.bytes);
    case Kind::kOut:
      ++peer.out.done;
      break;
    case Kind::kResultOut:
      ++peer.result_out.done;
      break;
    case Kind::kIn:
      ++peer.in.done;
      if (!peer.trash && event.segment < ticket.arrived.size()) ++ticket.arrived[event.segment];
      break;
    case Kind::kResultIn:
      ++peer.result_in.done;
      break;
    default:
      return;
  }
  const bool receives = event.kind == Kind::kIn || event.kind == Kind::kResultIn;
  if (receives && event.bytes != expected)
    throw sdk::message_error(PENSTOCK_MISMATCH, ticket.message, "rank ", event.peer, " sent ",
                             event.bytes, " bytes in a segment, expected ", expected);
}

bool all_here(const Ticket& ticket, uint64_t s) {
  if (ticket.n_opened != ticket.n_expected) return false;
  const bool in_openings = ticket.small || ticket.share.bytes <= kInlineBytes;
  return in_openings || ticket.arrived[s] == ticket.channel->size - 1;
}

void reduce_segment(Ticket& ticket, uint64_t s) {
  const Channel& channel = *ticket.channel;
  const penstock_message& message = ticket.message;
  const uint64_t begin = ticket.share.begin(s);
  for (uint32_t r = 0; r < channel.size; ++r) {
    if (r == channel.rank)
      ticket.sources[r] = ticket.own_share + begin;
    else if (ticket.small)
      ticket.sources[r] =
          ticket.openings_in.data() + r * (sizeof(Header) + channel.opening_bytes) + sizeof(Header);
    else
      ticket.sources[r] = ring_place(ticket, r, s);
  }
  const uint64_t count = (ticket.share.end(s) - begin) / sdk::dtype_bytes(message.dtype);
  if (!kernels::reduce_in_order(message.dtype, message.reduction, ticket.sources.data(),
                                channel.size, ticket.share.data + begin, count))
    throw sdk::internal("dtype ", message.dtype, " was checked but cannot be reduced");
  ++ticket.share.done;
}

void copy_own(Ticket& ticket) {
  const uint64_t n = std::min(kCopyBytes, ticket.own_bytes - ticket.own_copied);
  if (n == 0) return;
  std::memcpy(ticket.own_to + ticket.own_copied, ticket.own_from + ticket.own_copied, n);
  ticket.own_copied += n;
}

void step(Ticket& ticket) {
  for (int i = 0; i < kReducedSegments && !ticket.share.complete(); ++i) {
    if (!all_here(ticket, ticket.share.done)) break;
    reduce_segment(ticket, ticket.share.done);
  }
  copy_own(ticket);
  for (uint32_t r = 0; r < ticket.channel->size; ++r) post(ticket, r);
}

}  // namespace

void start_direct(Ticket& ticket) {
  lay_out(ticket);
  expect_openings(ticket);
  const Channel& channel = *ticket.channel;
  const bool relays =
      ticket.message.pattern == PENSTOCK_BROADCAST && channel.rank != ticket.message.peer;
  // Each rank begins behind itself, so that not all send to rank 0 first.
  for (uint32_t i = 1; i <= channel.size && !relays; ++i) {
    const uint32_t r = (channel.rank + i) % channel.size;
    if (!ticket.peers[r].sends) continue;
    send_opening(ticket, r);
    post(ticket, r);
  }
}

bool progress_direct(Ticket& ticket) {
  ticket.requests.test(
      [&](const Event& event, uint64_t expected) { handle(ticket, event, expected); });
  step(ticket);
  if (!ticket.finished()) return false;
  if (ticket.failure_code != PENSTOCK_OK)
    throw sdk::message_error(ticket.failure_code, ticket.message, ticket.failure);
  return true;
}

std::string silent_ranks(const Ticket& ticket) {
  std::string ranks;
  for (uint32_t r = 0; r < ticket.peers.size(); ++r) {
    const Peer& peer = ticket.peers[r];
    const bool silent = (peer.receives && !peer.opened) || !peer.in.complete() ||
                        !peer.result_in.complete() || !peer.out.complete() ||
                        !peer.result_out.complete();
    if (silent) ranks += (ranks.empty() ? "ranks " : ", ") + std::to_string(r);
  }
  return ranks.empty() ? "nobody in particular" : ranks;
}

}  // namespace penstock::mpi

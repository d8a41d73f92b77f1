// See direct.hpp.
#include "direct.hpp"

#include "opening.hpp"

#include <kernels/message.hpp>
#include <kernels/reduce.hpp>

#include <algorithm>
#include <cstring>

namespace penstock::collectives {

namespace {

// The time to settle after an abort, for all messages of a channel together: well within the
// declared bound.
constexpr std::chrono::milliseconds kSettlingTime{20};
constexpr uint64_t kCopyBytes = uint64_t(1) << 20;    // copied of the own part per progress call
constexpr uint64_t kReduceBytes = uint64_t(1) << 20;  // added of each rank per progress call

bool reduces(const Ticket& ticket) {
  return sdk::is_reduction(ticket.message.pattern);
}

// Whether the data that peers send to a reduction beyond their openings go through a ring.
bool uses_ring(const Ticket& ticket) {
  return reduces(ticket) && !ticket.small && ticket.share.bytes > kInlineBytes &&
         ticket.channel->size > 1;
}

// The place in the ring for segment `s` from `rank` until a reduction adds it.
char* ring_place(Ticket& ticket, uint32_t rank, uint64_t s) {
  const Channel& channel = *ticket.channel;
  const uint64_t column = rank - (rank > channel.rank ? 1 : 0);
  const uint64_t row = s % window(channel.segment);
  return ticket.ring.data() + (row * (channel.size - 1) + column) * channel.ring_slot();
}

void receive_segment(Ticket& ticket, uint32_t r) {
  Peer& peer = ticket.peers[r];
  const uint64_t s = peer.in.posted++;
  const uint64_t bytes = peer.in.end(s) - peer.in.begin(s);
  char* to;
  if (peer.trash) {
    peer.waste.resize(peer.in.segment);
    to = peer.waste.data();
  } else if (reduces(ticket)) {
    to = ring_place(ticket, r, s) + (s == 0 ? peer.inline_bytes : 0);
  } else {
    to = peer.in.data + peer.in.begin(s);
  }
  receive(ticket, {Kind::kIn, r, s, bytes, ticket.on_device && !peer.trash}, to);
}

void send_segment(Ticket& ticket, uint32_t r, Stream& stream, Kind kind) {
  const uint64_t s = stream.posted++;
  send(ticket, {kind, r, s, stream.end(s) - stream.begin(s), ticket.on_device},
       stream.data + stream.begin(s));
}

bool may_post(const Stream& stream) {
  return stream.posted < stream.n_segments && stream.posted - stream.done < window(stream.segment);
}

// Whether the peer is ready for the segments behind the opening; otherwise the transport would have
// to store them. Up to one segment is sent in advance.
bool may_send(const Peer& peer) {
  return peer.granted && (peer.opened || !peer.receives || peer.out.n_segments <= 1);
}

bool may_receive(const Ticket& ticket, const Peer& peer) {
  // One waste buffer per peer: one segment at a time.
  if (peer.trash) return peer.in.posted == peer.in.done;
  // A place in the ring is free again when its segment has been added up.
  if (reduces(ticket))
    return ticket.has_ring && peer.in.posted < ticket.share.done + window(ticket.channel->segment);
  return true;
}

// Posts all requests that are possible now, for one peer.
void post(Ticket& ticket, uint32_t r) {
  Peer& peer = ticket.peers[r];
  const Channel& channel = *ticket.channel;
  const bool relays =
      ticket.message.pattern == PENSTOCK_BROADCAST && channel.rank != ticket.message.peer;
  const auto relayed = [&] {
    const auto from = std::find_if(ticket.peers.begin(), ticket.peers.end(),
                                   [](const Peer& parent) { return parent.receives; });
    return from->in.done;
  };
  while (may_post(peer.out) && may_send(peer) && (!relays || peer.out.posted < relayed()))
    send_segment(ticket, r, peer.out, Kind::kOut);
  while (may_post(peer.in) && may_receive(ticket, peer)) receive_segment(ticket, r);
  while (may_post(peer.result_out) && peer.result_out.posted < ticket.share.done)
    send_segment(ticket, r, peer.result_out, Kind::kResultOut);
  // In place, the result overwrites the data sent to its owner, which must have left before.
  // Segments of both streams end at equal places.
  while (may_post(peer.result_in) && ticket.n_opened == ticket.n_expected &&
         (peer.out.complete() || peer.result_in.posted < peer.out.done)) {
    const uint64_t s = peer.result_in.posted++;
    const uint64_t bytes = peer.result_in.end(s) - peer.result_in.begin(s);
    receive(ticket, {Kind::kResultIn, r, s, bytes}, peer.result_in.data + peer.result_in.begin(s));
  }
}

// Runs `work` for a ticket; an error ends this ticket only.
template <typename Work>
void guarded(Ticket& ticket, Work&& work) {
  ticket.touched = true;
  try {
    work();
  } catch (...) {
    if (ticket.thrown == nullptr) ticket.thrown = std::current_exception();
  }
}

// Begins to use the ring of a reduction: the data of the openings move there, and peers may send.
void use_ring(Ticket& ticket) {
  ticket.has_ring = true;
  const Channel& channel = *ticket.channel;
  for (uint32_t r = 0; r < channel.size; ++r) {
    if (r == channel.rank) continue;
    std::memcpy(ring_place(ticket, r, 0),
                ticket.openings_in.data() + r * channel.slot_bytes() + sizeof(Header),
                kInlineBytes);
    if (ticket.peers[r].owed_grant) send_grant(ticket, r);
  }
}

void hand_out_rings(Channel& channel) {
  while (!channel.rings.empty()) {
    const auto next = std::find_if(
        channel.waiting.begin(), channel.waiting.end(),
        [&](const Ticket* ticket) { return !ticket->is_long || channel.n_long < kLongRings; });
    if (next == channel.waiting.end()) return;
    Ticket& ticket = **next;
    channel.waiting.erase(next);
    if (ticket.is_long) ++channel.n_long;
    std::swap(ticket.ring, channel.rings.back());
    channel.rings.pop_back();
    guarded(ticket, [&] { use_ring(ticket); });
  }
}

void await_ring(Ticket& ticket) {
  Channel& channel = *ticket.channel;
  if (!channel.has_rings) {
    channel.has_rings = true;
    channel.rings.resize(kRings);
    // Memory that is never touched costs nothing.
    for (Buffer& ring : channel.rings)
      ring.resize(window(channel.segment) * (channel.size - 1) * channel.ring_slot());
  }
  std::fill(std::begin(ticket.arrived), std::end(ticket.arrived), 0u);
  ticket.is_long = ticket.share.bytes > kLongShare;
  channel.waiting.push_back(&ticket);
  hand_out_rings(channel);
}

void return_ring(Ticket& ticket) {
  Channel& channel = *ticket.channel;
  std::erase(channel.waiting, &ticket);
  if (!ticket.has_ring) return;
  ticket.has_ring = false;
  if (ticket.is_long) --channel.n_long;
  channel.rings.push_back(std::move(ticket.ring));
  hand_out_rings(channel);
}

// A failed reduction fails on all ranks, because every rank has an opening of every other rank: no
// results will be sent, and later data are discarded.
void give_up_reduction(Ticket& ticket) {
  ticket.share.clear();
  for (Peer& peer : ticket.peers) {
    peer.trash = true;
    peer.result_out.clear();
    peer.result_in.clear();
  }
}

void opened(Ticket& ticket, uint32_t from, uint64_t bytes) {
  take_opening(ticket, from, bytes);
  const bool failed = ticket.failure_code != PENSTOCK_OK;
  if (failed && reduces(ticket)) give_up_reduction(ticket);
  for (uint32_t r = 0; r < ticket.channel->size; ++r)
    if (ticket.peers[r].owed_grant && (ticket.peers[r].trash || !reduces(ticket)))
      send_grant(ticket, r);
  if (!failed && uses_ring(ticket) && ticket.n_opened == ticket.n_expected) await_ring(ticket);
  if (ticket.message.pattern != PENSTOCK_BROADCAST) return;
  for (uint32_t r = 0; r < ticket.channel->size; ++r)
    if (ticket.peers[r].sends) send_opening(ticket, r, failed);
}

void handle(Ticket& ticket, const Ended& ended) {
  const Event& event = ended.event;
  Peer& peer = ticket.peers[event.peer];
  if (ended.code != 0) ticket.channel->wire->fail(ended);
  switch (event.kind) {
    case Kind::kOpeningIn:
      return opened(ticket, event.peer, ended.bytes);
    case Kind::kGrantIn:
      peer.granted = true;
      return;
    case Kind::kOut:
      return peer.out.finish(event.segment);
    case Kind::kResultOut:
      return peer.result_out.finish(event.segment);
    case Kind::kIn:
      peer.in.finish(event.segment);
      if (!peer.trash && reduces(ticket))
        ++ticket.arrived[event.segment % window(ticket.channel->segment)];
      break;
    case Kind::kResultIn:
      peer.result_in.finish(event.segment);
      break;
    default:
      return;
  }
  if (ended.bytes != event.bytes)
    throw sdk::message_error(PENSTOCK_MISMATCH, ticket.message, "rank ", event.peer, " sent ",
                             ended.bytes, " bytes in a segment, expected ", event.bytes);
}

bool all_here(const Ticket& ticket, uint64_t s) {
  if (ticket.n_opened != ticket.n_expected) return false;
  const Channel& channel = *ticket.channel;
  return !uses_ring(ticket) ||
         (ticket.has_ring && ticket.arrived[s % window(channel.segment)] == channel.size - 1);
}

void reduce_segment(Ticket& ticket, uint64_t s) {
  const Channel& channel = *ticket.channel;
  const penstock_message& message = ticket.message;
  const uint64_t begin = ticket.share.begin(s);
  for (uint32_t r = 0; r < channel.size; ++r) {
    if (r == channel.rank)
      ticket.sources[r] = ticket.own_share + begin;
    else if (ticket.has_ring)
      ticket.sources[r] = ring_place(ticket, r, s);
    else
      ticket.sources[r] = ticket.openings_in.data() + r * channel.slot_bytes() + sizeof(Header);
  }
  const uint64_t count = (ticket.share.end(s) - begin) / sdk::dtype_bytes(message.dtype);
  if (!kernels::reduce_in_order(message.dtype, message.reduction, ticket.sources.data(),
                                channel.size, ticket.share.data + begin, count))
    throw sdk::internal("dtype ", message.dtype, " was checked but cannot be reduced");
  ticket.arrived[s % window(channel.segment)] = 0;
  ticket.share.finish(s);
}

void copy_own(Ticket& ticket) {
  const uint64_t n = std::min(kCopyBytes, ticket.own_bytes - ticket.own_copied);
  if (n == 0) return;
  std::memcpy(ticket.own_to + ticket.own_copied, ticket.own_from + ticket.own_copied, n);
  ticket.own_copied += n;
}

// Does a bounded amount of work. If work is left, the ticket stays touched, so that it continues
// without a further message.
void step(Ticket& ticket) {
  const uint64_t most = std::max<uint64_t>(1, kReduceBytes / ticket.share.segment);
  for (uint64_t i = 0; i < most && !ticket.share.complete(); ++i) {
    if (!all_here(ticket, ticket.share.done)) break;
    reduce_segment(ticket, ticket.share.done);
  }
  if (ticket.share.complete()) return_ring(ticket);
  copy_own(ticket);
  for (uint32_t r = 0; r < ticket.channel->size; ++r) post(ticket, r);
  ticket.touched = ticket.own_copied != ticket.own_bytes ||
                   (!ticket.share.complete() && all_here(ticket, ticket.share.done));
}

}  // namespace

void start_direct(Ticket& ticket) {
  lay_out(ticket);
  expect_openings(ticket);
  const Channel& channel = *ticket.channel;
  const bool relays =
      ticket.message.pattern == PENSTOCK_BROADCAST && channel.rank != ticket.message.peer;
  // Each rank begins with the rank after it, so that not all ranks send to rank 0 first.
  for (uint32_t i = 1; i <= channel.size && !relays; ++i) {
    const uint32_t r = (channel.rank + i) % channel.size;
    if (!ticket.peers[r].sends) continue;
    send_opening(ticket, r);
    post(ticket, r);
  }
  ticket.touched = true;
}

bool progress_direct(Ticket& ticket) {
  if (ticket.touched) step(ticket);
  const bool failed = ticket.failure_code != PENSTOCK_OK;
  // A header may have announced data that no rank sends.
  const bool silent = ticket.channel->now - ticket.heard > ticket.channel->patience;
  if (!ticket.finished() && !(failed && silent)) return false;
  if (failed) throw sdk::message_error(ticket.failure_code, ticket.message, ticket.failure);
  return true;
}

void collect(Channel& channel) {
  ++channel.round;
  channel.now = std::chrono::steady_clock::now();
  for (const Ended& ended : channel.wire->test()) {
    Ticket& ticket = *ended.ticket;
    --ticket.n_requests;
    ticket.heard = channel.now;
    if (!ticket.lost && channel.aborted) {
      continue;  // further requests would only use buffers that are about to be released
    } else if (!ticket.lost) {
      guarded(ticket, [&] { handle(ticket, ended); });
    } else if (ticket.n_requests == 0) {
      std::erase(channel.lost, &ticket);
      give_back(ticket);
    }
  }
}

void give_back(Ticket& ticket) {
  Channel& channel = *ticket.channel;
  ticket.lost = ticket.n_requests != 0;
  if (!ticket.lost) {
    return_ring(ticket);
    channel.free.push_back(&ticket);
    return;
  }
  std::erase(channel.waiting, &ticket);
  channel.wire->cancel(ticket);
  channel.lost.push_back(&ticket);
}

void settle(Channel& channel, const Ticket& ticket) {
  const auto now = [] { return std::chrono::steady_clock::now(); };
  if (!channel.settling) {
    channel.settling = true;
    channel.settle_until = now() + kSettlingTime;
    channel.wire->cancel_all();
  }
  while (ticket.lost && now() < channel.settle_until) collect(channel);
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

}  // namespace penstock::collectives

// See opening.hpp.
#include "opening.hpp"

#include <kernels/message.hpp>

#include <bit>
#include <cstring>

namespace penstock::mpi {

namespace {

constexpr uint32_t kDirectBroadcast = 4;  // ranks; above that a tree is faster

uint64_t width_of(const penstock_message& message) {
  return message.pattern == PENSTOCK_BARRIER ? 1 : sdk::dtype_bytes(message.dtype);
}

// Rank j's part of `count` elements: as equal as can be, the longer ones first.
uint64_t part_count(uint64_t count, uint32_t size, uint32_t j) {
  return count / size + (j < count % size ? 1 : 0);
}
uint64_t part_first(uint64_t count, uint32_t size, uint32_t j) {
  return count / size * j + std::min<uint64_t>(j, count % size);
}

uint64_t hash_of(const uint64_t* counts, uint32_t size) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a over words
  for (uint32_t r = 0; r < size; ++r) hash = (hash ^ counts[r]) * 0x100000001b3u;
  return hash;
}

// What rank `rank` must find in an opening from this rank; the reverse is compared in take_opening.
Header header_for(const Ticket& ticket, uint32_t rank) {
  const penstock_message& message = ticket.message;
  Header header{};
  header.id = message.id;
  header.bytes = ticket.peers[rank].send_bytes;
  header.pattern = message.pattern;
  header.dtype = message.pattern == PENSTOCK_BARRIER ? 0 : message.dtype;
  const bool whole = sdk::is_reduction(message.pattern) || message.pattern == PENSTOCK_BROADCAST;
  header.count = whole ? message.count : header.bytes / width_of(message);
  if (sdk::is_reduction(message.pattern)) header.reduction = message.reduction;
  if (message.pattern == PENSTOCK_REDUCE_SCATTER)
    header.counts = hash_of(message.receive_counts, ticket.channel->size);
  if (message.pattern == PENSTOCK_BROADCAST) header.root = message.peer;
  return header;
}

void fail(Ticket& ticket, const std::string& text) {
  if (ticket.failure_code != PENSTOCK_OK) return;
  ticket.failure_code = PENSTOCK_MISMATCH;
  ticket.failure = text;
}

// Room for the parts that the peers send to this rank's share, and their sum's place.
void lay_out_share(Ticket& ticket, const char* own, char* target, uint64_t bytes) {
  const Channel& channel = *ticket.channel;
  ticket.share.set(target, bytes, ticket.small ? bytes : kInlineBytes);
  ticket.own_share = own;
  ticket.ring_slot =
      ticket.small ? bytes : std::min<uint64_t>(bytes + 7, kSegment + kInlineBytes) & ~uint64_t(7);
  const uint64_t slots = std::min(ticket.share.n_segments, kWindow);
  if (!ticket.small && channel.size > 1)
    ticket.ring.resize(slots * ticket.ring_slot * channel.size);
  ticket.sources.resize(channel.size);
  ticket.arrived.assign(ticket.share.n_segments, 0);
}

void lay_out_reduction(Ticket& ticket) {
  const penstock_message& message = ticket.message;
  const Channel& channel = *ticket.channel;
  const uint64_t width = width_of(message);
  const char* send = static_cast<const char*>(message.send);
  char* receive = static_cast<char*>(message.receive);
  const bool all = message.pattern == PENSTOCK_ALL_REDUCE;
  ticket.small = all && message.count * width <= channel.small_bytes;
  uint64_t before = 0;
  for (uint32_t r = 0; r < channel.size; ++r) {
    uint64_t first = 0;
    uint64_t count = message.count;
    if (!ticket.small) {
      first = all ? part_first(message.count, channel.size, r) : before;
      count = all ? part_count(message.count, channel.size, r) : message.receive_counts[r];
      before += count;
    }
    Peer& peer = ticket.peers[r];
    peer.send = send + first * width;
    peer.send_bytes = count * width;
    if (r == channel.rank)
      lay_out_share(ticket, peer.send, all ? receive + first * width : receive, peer.send_bytes);
    else if (all && !ticket.small)
      peer.result_in.set(receive + first * width, peer.send_bytes, kInlineBytes);
    peer.sends = peer.receives = r != channel.rank;
  }
  if (!all || ticket.small) return;
  for (uint32_t r = 0; r < channel.size; ++r)
    if (r != channel.rank)
      ticket.peers[r].result_out.set(ticket.share.data, ticket.share.bytes, kInlineBytes);
}

void lay_out_gather(Ticket& ticket) {
  const penstock_message& message = ticket.message;
  const Channel& channel = *ticket.channel;
  const uint64_t width = width_of(message);
  const bool exact = (message.flags & PENSTOCK_MESSAGE_EXACT_COUNTS) != 0;
  uint64_t before = 0;
  for (uint32_t r = 0; r < channel.size; ++r) {
    const bool to_all = message.pattern == PENSTOCK_ALL_GATHER;
    const uint64_t count = to_all ? message.count : message.send_counts[r];
    Peer& peer = ticket.peers[r];
    peer.send = static_cast<const char*>(message.send) + (to_all ? 0 : before) * width;
    peer.send_bytes = count * width;
    before += count;
    peer.sends = peer.receives = r != channel.rank;
    if (r != channel.rank) continue;
    uint64_t& room = message.receive_counts[r];
    if (exact ? count != room : count > room) {
      fail(ticket, sdk::text("this rank has ", count, " elements for itself, ",
                             exact ? "expected exactly " : "there is room for ", room));
      continue;
    }
    room = count;
    ticket.own_from = peer.send;
    ticket.own_to = static_cast<char*>(message.receive) + message.receive_offsets[r] * width;
    ticket.own_bytes = ticket.own_from == ticket.own_to ? 0 : peer.send_bytes;
  }
}

// Children and parent in the tree of a broadcast, counted from the root.
void lay_out_broadcast(Ticket& ticket) {
  const penstock_message& message = ticket.message;
  const Channel& channel = *ticket.channel;
  const uint64_t bytes = message.count * width_of(message);
  const bool root = channel.rank == message.peer;
  const uint32_t place = (channel.rank + channel.size - message.peer) % channel.size;
  const auto child = [&](uint32_t at) {
    Peer& peer = ticket.peers[(at + message.peer) % channel.size];
    peer.send = static_cast<const char*>(root ? message.send : message.receive);
    peer.send_bytes = bytes;
    peer.sends = true;
  };
  uint32_t parent = 0;
  if (channel.size <= kDirectBroadcast) {
    for (uint32_t at = 1; root && at < channel.size; ++at) child(at);
  } else {
    // Place p's parent is p without its highest bit; the farthest children first.
    const uint32_t high = place == 0 ? 0 : std::bit_floor(place);
    parent = place - high;
    for (uint32_t bit = std::bit_floor(channel.size - 1); bit > high; bit /= 2)
      if (place + bit < channel.size) child(place + bit);
  }
  if (!root) ticket.peers[(parent + message.peer) % channel.size].receives = true;
  if (root && message.receive != nullptr && message.receive != message.send) {
    ticket.own_from = static_cast<const char*>(message.send);
    ticket.own_to = static_cast<char*>(message.receive);
    ticket.own_bytes = bytes;
  }
}

void lay_out_pair(Ticket& ticket) {
  const penstock_message& message = ticket.message;
  Peer& peer = ticket.peers[message.peer];
  peer.receives = message.pattern == PENSTOCK_RECEIVE;
  peer.sends = message.pattern == PENSTOCK_SEND;
  peer.send = static_cast<const char*>(message.send);
  peer.send_bytes = peer.sends ? message.count * width_of(message) : 0;
}

// Where the data of `rank` goes, its opening's part first.
char* place_for(Ticket& ticket, uint32_t rank) {
  const penstock_message& message = ticket.message;
  if (sdk::is_reduction(message.pattern)) return ticket.ring.data() + rank * ticket.ring_slot;
  char* receive = static_cast<char*>(message.receive);
  if (message.pattern != PENSTOCK_ALL_GATHER && message.pattern != PENSTOCK_ALL_TO_ALL)
    return receive;
  return receive + message.receive_offsets[rank] * width_of(message);
}

// Compares what `rank` sent with what this rank believes the message to be. Returns what is wrong.
std::string disagreement(const Ticket& ticket, uint32_t rank, const Header& theirs) {
  const penstock_message& message = ticket.message;
  const Header mine = header_for(ticket, rank);
  const auto differ = [&](const char* what, const auto& here, const auto& there) {
    return sdk::text("ranks disagree on the ", what, ": rank ", ticket.channel->rank, " has ", here,
                     ", rank ", rank, " has ", there);
  };
  if (theirs.failed != 0) return sdk::text("rank ", rank, " could not pass the message on");
  uint32_t expected = message.pattern;
  if (expected == PENSTOCK_RECEIVE) expected = PENSTOCK_SEND;
  if (theirs.pattern != expected)
    return differ("pattern", sdk::pattern_name(expected), sdk::pattern_name(theirs.pattern));
  if (expected != PENSTOCK_SEND && theirs.id != mine.id)
    return differ("message", mine.id, theirs.id);
  if (theirs.dtype != mine.dtype) return differ("dtype", mine.dtype, theirs.dtype);
  if (theirs.reduction != mine.reduction)
    return differ("reduction", mine.reduction, theirs.reduction);
  if (theirs.root != mine.root) return differ("root", mine.root, theirs.root);
  if (sdk::is_reduction(expected) || expected == PENSTOCK_BROADCAST) {
    const uint64_t bytes =
        expected == PENSTOCK_BROADCAST ? message.count * width_of(message) : ticket.share.bytes;
    if (theirs.count != mine.count) return differ("count", mine.count, theirs.count);
    if (theirs.counts != mine.counts) return differ("counts of the ranks", "others", "its own");
    if (theirs.bytes != bytes) return differ("bytes", bytes, theirs.bytes);
    return "";
  }
  if (expected == PENSTOCK_BARRIER) return "";
  const bool exact = (message.flags & PENSTOCK_MESSAGE_EXACT_COUNTS) != 0;
  const uint64_t room = expected == PENSTOCK_SEND ? message.count : message.receive_counts[rank];
  if (exact ? theirs.count != room : theirs.count > room)
    return sdk::text("rank ", rank, " sent ", theirs.count, " elements, ",
                     exact ? "expected exactly " : "there is room for ", room);
  if (theirs.bytes != theirs.count * width_of(message))
    return sdk::text("rank ", rank, " sent ", theirs.bytes, " bytes for ", theirs.count,
                     " elements");
  return "";
}

void tell_count(const Ticket& ticket, uint32_t rank, uint64_t count) {
  const penstock_message& message = ticket.message;
  if (message.pattern == PENSTOCK_ALL_GATHER || message.pattern == PENSTOCK_ALL_TO_ALL)
    message.receive_counts[rank] = count;
  else if (message.pattern == PENSTOCK_RECEIVE && message.receive_counts != nullptr)
    message.receive_counts[0] = count;
}

}  // namespace

void lay_out(Ticket& ticket) {
  const Channel& channel = *ticket.channel;
  ticket.peers.resize(channel.size);
  for (uint32_t r = 0; r < channel.size; ++r) {
    Peer& peer = ticket.peers[r];
    peer.send_bytes = peer.inline_bytes = 0;
    peer.sends = peer.receives = peer.opened = peer.trash = false;
    for (Stream* stream : {&peer.out, &peer.in, &peer.result_out, &peer.result_in})
      stream->set(nullptr, 0, 0);
  }
  ticket.share.set(nullptr, 0, 0);
  switch (ticket.message.pattern) {
    case PENSTOCK_ALL_REDUCE:
    case PENSTOCK_REDUCE_SCATTER:
      lay_out_reduction(ticket);
      break;
    case PENSTOCK_ALL_GATHER:
    case PENSTOCK_ALL_TO_ALL:
      lay_out_gather(ticket);
      break;
    case PENSTOCK_BROADCAST:
      lay_out_broadcast(ticket);
      break;
    case PENSTOCK_BARRIER:
      for (uint32_t r = 0; r < channel.size; ++r)
        ticket.peers[r].sends = ticket.peers[r].receives = r != channel.rank;
      break;
    default:
      lay_out_pair(ticket);
  }
  for (const Peer& peer : ticket.peers) ticket.n_expected += peer.receives ? 1 : 0;
  // Per peer an opening each way and, unless all fits there, four streams.
  ticket.requests.reserve(channel.size * (ticket.small ? 2 : 2 + 4 * kWindow));
}

void expect_openings(Ticket& ticket) {
  const Channel& channel = *ticket.channel;
  const uint64_t slot = sizeof(Header) + channel.opening_bytes;
  if (ticket.n_expected == 0) return;
  ticket.openings_in.resize(channel.size * slot);
  for (uint32_t r = 0; r < channel.size; ++r) {
    if (!ticket.peers[r].receives) continue;
    check(MPI_Irecv(ticket.openings_in.data() + r * slot, static_cast<int>(slot), MPI_BYTE,
                    static_cast<int>(r), channel.tag(ticket.message, Kind::kOpeningIn),
                    channel.communicator, ticket.requests.add({Kind::kOpeningIn, r, 0, slot})),
          "MPI_Irecv");
  }
}

void send_opening(Ticket& ticket, uint32_t rank, bool failed) {
  const Channel& channel = *ticket.channel;
  Peer& peer = ticket.peers[rank];
  const uint64_t slot = sizeof(Header) + channel.opening_bytes;
  ticket.openings_out.resize(channel.size * slot);
  char* opening = ticket.openings_out.data() + rank * slot;
  if (failed) peer.send_bytes = 0;
  Header header = header_for(ticket, rank);
  header.failed = failed ? 1 : 0;
  const uint64_t here =
      std::min(peer.send_bytes, ticket.small ? channel.small_bytes : kInlineBytes);
  std::memcpy(opening, &header, sizeof header);
  if (here != 0) std::memcpy(opening + sizeof header, peer.send, here);
  check(MPI_Isend(opening, static_cast<int>(sizeof header + here), MPI_BYTE, static_cast<int>(rank),
                  channel.tag(ticket.message, Kind::kOpeningOut), channel.communicator,
                  ticket.requests.add({Kind::kOpeningOut, rank, 0, 0})),
        "MPI_Isend");
  // The stream only reads; MPI_Isend takes it back as const.
  if (here < peer.send_bytes)
    peer.out.set(const_cast<char*>(peer.send) + here, peer.send_bytes - here, 0);
}

void take_opening(Ticket& ticket, uint32_t rank, uint64_t bytes) {
  const Channel& channel = *ticket.channel;
  Peer& peer = ticket.peers[rank];
  peer.opened = true;
  ++ticket.n_opened;
  const char* opening = ticket.openings_in.data() + rank * (sizeof(Header) + channel.opening_bytes);
  Header header{};
  std::memcpy(&header, opening, std::min<uint64_t>(bytes, sizeof header));
  peer.inline_bytes = bytes < sizeof header ? 0 : bytes - sizeof header;
  const uint64_t most = ticket.small ? channel.small_bytes : kInlineBytes;
  if (bytes < sizeof header || header.bytes < peer.inline_bytes) {
    peer.trash = true;
    return fail(ticket, sdk::text("rank ", rank, " sent ", bytes, " bytes that are no message"));
  }
  const uint64_t rest = header.bytes - peer.inline_bytes;
  std::string wrong = disagreement(ticket, rank, header);
  if (wrong.empty() && peer.inline_bytes != std::min(header.bytes, most))
    wrong = sdk::text("rank ", rank, " sent ", peer.inline_bytes, " of ", header.bytes,
                      " bytes in its opening, expected ", std::min(header.bytes, most));
  if (!wrong.empty()) {
    fail(ticket, wrong);
    peer.trash = true;
    peer.in.set(nullptr, rest, 0);
    return;
  }
  tell_count(ticket, rank, header.count);
  // A small all-reduce adds up from the opening itself.
  if (ticket.small) return;
  char* place = place_for(ticket, rank);
  if (peer.inline_bytes != 0) std::memcpy(place, opening + sizeof header, peer.inline_bytes);
  peer.in.set(place == nullptr ? nullptr : place + peer.inline_bytes, rest, 0);
  if (ticket.message.pattern == PENSTOCK_BROADCAST) ticket.arrived.assign(peer.in.n_segments, 0);
}

}  // namespace penstock::mpi

// See opening.hpp.
#include "opening.hpp"

#include <kernels/message.hpp>

#include <bit>
#include <cstring>

namespace penstock::collectives {

namespace {

constexpr uint32_t kDirectBroadcast = 4;  // ranks; above that a tree is faster

uint64_t width_of(const penstock_message& message) {
  return message.pattern == PENSTOCK_BARRIER ? 1 : sdk::dtype_bytes(message.dtype);
}

// Rank j's part of `count` elements: parts are as equal as possible, the longer parts first.
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

// One-way messages have no opposite traffic behind which an announcement could queue.
uint64_t segment_of(const Ticket& ticket) {
  const uint32_t pattern = ticket.message.pattern;
  const bool one_way =
      pattern == PENSTOCK_BROADCAST || pattern == PENSTOCK_SEND || pattern == PENSTOCK_RECEIVE;
  return one_way ? kLongSegment : ticket.channel->segment;
}

// The header of an opening to `rank`. take_opening compares the headers of received openings.
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
  header.segment = static_cast<uint32_t>(segment_of(ticket));
  header.on_device = ticket.on_device ? 1 : 0;
  return header;
}

// Data bytes that fit in an opening; 0 for memory of a device, which only the wire may touch.
uint64_t most_inline(const Ticket& ticket) {
  if (ticket.on_device) return 0;
  return ticket.small ? ticket.channel->small_bytes : kInlineBytes;
}

void fail(Ticket& ticket, const std::string& text) {
  if (ticket.failure_code != PENSTOCK_OK) return;
  ticket.failure_code = PENSTOCK_MISMATCH;
  ticket.failure = text;
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
    if (r == channel.rank) {
      ticket.own_share = peer.send;
      ticket.share.set(all ? receive + first * width : receive, peer.send_bytes,
                       ticket.small ? peer.send_bytes : kInlineBytes, channel.segment);
    } else if (all && !ticket.small) {
      peer.result_in.set(receive + first * width, peer.send_bytes, kInlineBytes, channel.segment);
    }
    peer.sends = peer.receives = r != channel.rank;
  }
  if (!all || ticket.small) return;
  for (uint32_t r = 0; r < channel.size; ++r)
    if (r != channel.rank)
      ticket.peers[r].result_out.set(ticket.share.data, ticket.share.bytes, kInlineBytes,
                                     channel.segment);
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
    ticket.own_bytes = ticket.on_device || ticket.own_from == ticket.own_to ? 0 : peer.send_bytes;
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
  if (root && !ticket.on_device && message.receive != nullptr && message.receive != message.send) {
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

// The place for the data from `rank`, which begin with the data of its opening. Null for
// reductions, which keep the data in the opening until they have a ring.
char* place_for(const Ticket& ticket, uint32_t rank) {
  const penstock_message& message = ticket.message;
  if (sdk::is_reduction(message.pattern)) return nullptr;
  char* receive = static_cast<char*>(message.receive);
  if (message.pattern != PENSTOCK_ALL_GATHER && message.pattern != PENSTOCK_ALL_TO_ALL)
    return receive;
  return receive + message.receive_offsets[rank] * width_of(message);
}

// Compares the header from `rank` with this rank's message. Returns the difference as text.
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
    return differ("message", sdk::message_name(mine.id), sdk::message_name(theirs.id));
  if (theirs.dtype != mine.dtype) return differ("dtype", mine.dtype, theirs.dtype);
  if (theirs.reduction != mine.reduction)
    return differ("reduction", mine.reduction, theirs.reduction);
  if (theirs.root != mine.root) return differ("root", mine.root, theirs.root);
  const auto memory = [](const Header& of) {
    return of.on_device != 0 ? "a device's" : "a host's";
  };
  if (theirs.on_device != mine.on_device) return differ("memory", memory(mine), memory(theirs));
  if (sdk::is_reduction(expected) || expected == PENSTOCK_BROADCAST) {
    const uint64_t bytes =
        expected == PENSTOCK_BROADCAST ? message.count * width_of(message) : ticket.share.bytes;
    if (theirs.count != mine.count) return differ("count", mine.count, theirs.count);
    if (theirs.counts != mine.counts) return differ("counts of the ranks", "others", "its own");
    if (theirs.bytes != bytes) return differ("bytes", bytes, theirs.bytes);
    if (theirs.segment != mine.segment) return differ("segment", mine.segment, theirs.segment);
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
  for (uint32_t r = 0; r < channel.size; ++r) {
    Peer& peer = ticket.peers[r];
    peer.send_bytes = peer.inline_bytes = 0;
    peer.sends = peer.receives = peer.opened = peer.trash = false;
    peer.granted = peer.owed_grant = false;
    for (Stream* stream : {&peer.out, &peer.in, &peer.result_out, &peer.result_in}) stream->clear();
  }
  ticket.share.clear();
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
}

void expect_openings(Ticket& ticket) {
  const Channel& channel = *ticket.channel;
  const uint64_t slot = channel.slot_bytes();
  for (uint32_t r = 0; r < channel.size; ++r) {
    if (!ticket.peers[r].receives) continue;
    receive(ticket, {Kind::kOpeningIn, r, 0, slot}, ticket.openings_in.data() + r * slot);
  }
}

void send_opening(Ticket& ticket, uint32_t rank, bool failed) {
  const Channel& channel = *ticket.channel;
  Peer& peer = ticket.peers[rank];
  char* opening = ticket.openings_out.data() + rank * channel.slot_bytes();
  if (failed) peer.send_bytes = 0;
  Header header = header_for(ticket, rank);
  header.failed = failed ? 1 : 0;
  const uint64_t here = std::min(peer.send_bytes, most_inline(ticket));
  const uint64_t rest = peer.send_bytes - here;
  // Up to one segment is sent without a grant, for latency.
  peer.granted = !sdk::is_reduction(ticket.message.pattern) || rest <= header.segment;
  header.awaits_grant = peer.granted ? 0 : 1;
  std::memcpy(opening, &header, sizeof header);
  if (here != 0) std::memcpy(opening + sizeof header, peer.send, here);
  send(ticket, {Kind::kOpeningOut, rank, 0, sizeof header + here}, opening);
  // The stream only reads.
  if (rest != 0) peer.out.set(const_cast<char*>(peer.send) + here, rest, 0, header.segment);
  if (!peer.granted) receive(ticket, {Kind::kGrantIn, rank, 0, 0}, nullptr);
}

void send_grant(Ticket& ticket, uint32_t rank) {
  ticket.peers[rank].owed_grant = false;
  send(ticket, {Kind::kGrantOut, rank, 0, 0}, nullptr);
}

void take_opening(Ticket& ticket, uint32_t rank, uint64_t bytes) {
  const Channel& channel = *ticket.channel;
  Peer& peer = ticket.peers[rank];
  peer.opened = true;
  ++ticket.n_opened;
  const char* opening = ticket.openings_in.data() + rank * channel.slot_bytes();
  Header header{};
  std::memcpy(&header, opening, std::min<uint64_t>(bytes, sizeof header));
  peer.inline_bytes = bytes < sizeof header ? 0 : bytes - sizeof header;
  const uint64_t most = most_inline(ticket);
  peer.owed_grant = header.awaits_grant != 0;
  if (bytes < sizeof header || header.bytes < peer.inline_bytes || header.segment == 0 ||
      header.segment > kLongSegment) {
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
    peer.in.set(nullptr, rest, 0, header.segment);
    return;
  }
  tell_count(ticket, rank, header.count);
  // A small all-reduce adds the data in the opening itself.
  if (ticket.small) return;
  char* place = place_for(ticket, rank);
  if (place != nullptr && peer.inline_bytes != 0)
    std::memcpy(place, opening + sizeof header, peer.inline_bytes);
  peer.in.set(place == nullptr ? nullptr : place + peer.inline_bytes, rest, 0, header.segment);
}

}  // namespace penstock::collectives

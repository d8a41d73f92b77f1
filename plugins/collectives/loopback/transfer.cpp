// See transfer.hpp.
#include "transfer.hpp"

#include <kernels/message.hpp>
#include <kernels/reduce.hpp>

#include <algorithm>
#include <cstring>

namespace penstock::loopback {

namespace {

constexpr uint64_t kSegment = uint64_t(1) << 16;    // elements reduced in one step
constexpr uint64_t kCopyBytes = uint64_t(1) << 20;  // copied in one step

// Copies at most kCopyBytes of the remaining bytes; true when all `bytes` are copied.
bool copy_step(Ticket& ticket, const char* from, char* to, uint64_t bytes) {
  const uint64_t n = std::min(kCopyBytes, bytes - ticket.copied);
  if (n != 0) std::memcpy(to + ticket.copied, from + ticket.copied, n);
  ticket.copied += n;
  return ticket.copied == bytes;
}

bool reduce_step(Rendezvous& rendezvous) {
  const uint64_t segment = rendezvous.next_segment.fetch_add(1);
  if (segment < rendezvous.n_segments) {
    const Part& facts = rendezvous.parts[0];
    const uint64_t first = segment * kSegment;
    const uint64_t n = std::min(kSegment, facts.count - first);
    if (!kernels::reduce_in_order(facts.dtype, facts.reduction, rendezvous.sources.data(),
                                  rendezvous.sources.size(), rendezvous.result.data(), n, first))
      throw sdk::internal("dtype ", facts.dtype, " was checked but cannot be reduced");
    rendezvous.n_reduced.fetch_add(1);
  }
  return rendezvous.n_reduced.load() == rendezvous.n_segments;
}

bool transfer_reduction(Ticket& ticket) {
  Rendezvous& rendezvous = *ticket.rendezvous;
  if (!reduce_step(rendezvous)) return false;
  const penstock_message& message = ticket.message;
  const uint64_t width = sdk::dtype_bytes(message.dtype);
  uint64_t first = 0;
  uint64_t count = message.count;
  if (message.pattern == PENSTOCK_REDUCE_SCATTER) {
    const Part& part = rendezvous.parts[ticket.part];
    first = sdk::sum_of(part.counts.data(), ticket.rank);
    count = part.counts[ticket.rank];
  }
  return copy_step(ticket, rendezvous.result.data() + first * width,
                   static_cast<char*>(message.receive), count * width);
}

// All-gather and all-to-all: copies the elements that each rank has for this rank, rank by rank.
bool transfer_gather(Ticket& ticket, uint32_t size) {
  const penstock_message& message = ticket.message;
  const bool exact = (message.flags & PENSTOCK_MESSAGE_EXACT_COUNTS) != 0;
  const uint64_t width = sdk::dtype_bytes(message.dtype);
  for (; ticket.from < size; ++ticket.from, ticket.copied = 0) {
    Part& part = ticket.rendezvous->parts[ticket.from];
    const bool to_all = message.pattern == PENSTOCK_ALL_GATHER;
    const uint64_t first = to_all ? 0 : sdk::sum_of(part.counts.data(), ticket.rank);
    const uint64_t count = to_all ? part.count : part.counts[ticket.rank];
    uint64_t& room = message.receive_counts[ticket.from];
    if (ticket.copied == 0 && (exact ? count != room : count > room))
      throw sdk::message_error(PENSTOCK_MISMATCH, message, "rank ", ticket.from, " sent ", count,
                               " elements, ", exact ? "expected exactly " : "there is room for ",
                               room);
    char* to = static_cast<char*>(message.receive) + message.receive_offsets[ticket.from] * width;
    if (!copy_step(ticket, part.bytes.data() + first * width, to, count * width)) return false;
    room = count;
  }
  return true;
}

bool transfer_receive(Ticket& ticket) {
  const penstock_message& message = ticket.message;
  Part& sent = ticket.rendezvous->parts[0];
  const bool exact = (message.flags & PENSTOCK_MESSAGE_EXACT_COUNTS) != 0;
  if (sent.dtype != message.dtype)
    throw sdk::message_error(PENSTOCK_MISMATCH, message, "rank ", message.peer, " sent dtype ",
                             sent.dtype, ", expected ", message.dtype);
  if (exact ? sent.count != message.count : sent.count > message.count)
    throw sdk::message_error(PENSTOCK_MISMATCH, message, "rank ", message.peer, " sent ",
                             sent.count, " elements, ",
                             exact ? "expected exactly " : "there is room for ", message.count);
  const uint64_t bytes = sent.count * sdk::dtype_bytes(sent.dtype);
  if (!copy_step(ticket, sent.bytes.data(), static_cast<char*>(message.receive), bytes))
    return false;
  if (message.receive_counts != nullptr) message.receive_counts[0] = sent.count;
  return true;
}

}  // namespace

void prepare_reduction(Rendezvous& rendezvous) {
  const Part& facts = rendezvous.parts[0];
  rendezvous.n_segments = (facts.count + kSegment - 1) / kSegment;
  rendezvous.result.resize(facts.count * sdk::dtype_bytes(facts.dtype));
  rendezvous.sources.clear();
  for (Part& part : rendezvous.parts) rendezvous.sources.push_back(part.bytes.data());
}

bool transfer(Ticket& ticket, uint32_t size) {
  const penstock_message& message = ticket.message;
  switch (message.pattern) {
    case PENSTOCK_ALL_REDUCE:
    case PENSTOCK_REDUCE_SCATTER:
      return transfer_reduction(ticket);
    case PENSTOCK_ALL_GATHER:
    case PENSTOCK_ALL_TO_ALL:
      return transfer_gather(ticket, size);
    case PENSTOCK_BROADCAST: {
      if (message.receive == nullptr) return true;
      Part& root = ticket.rendezvous->parts[message.peer];
      return copy_step(ticket, root.bytes.data(), static_cast<char*>(message.receive),
                       root.count * sdk::dtype_bytes(root.dtype));
    }
    case PENSTOCK_RECEIVE:
      return transfer_receive(ticket);
    default:  // SEND and BARRIER end once the other parts have arrived
      return true;
  }
}

}  // namespace penstock::loopback

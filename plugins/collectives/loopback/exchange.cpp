// See exchange.hpp. This file joins messages to rendezvous; transfer.cpp works on complete
// rendezvous.
#include "exchange.hpp"

#include "transfer.hpp"

#include <kernels/message.hpp>

#include <algorithm>
#include <cstring>

namespace penstock::loopback {

namespace {

// The most rendezvous that are kept for reuse. Below this number a tag finds a rendezvous that had
// an equal tag before, with buffers of the right size.
constexpr size_t kMostSpareRendezvous = 4096;

bool is_pair(uint32_t pattern) {
  return pattern == PENSTOCK_SEND || pattern == PENSTOCK_RECEIVE;
}

// The bytes that a message brings to its rendezvous.
uint64_t bytes_brought(const Ticket& ticket) {
  const penstock_message& message = ticket.message;
  const bool nothing = message.pattern == PENSTOCK_RECEIVE || message.pattern == PENSTOCK_BARRIER ||
                       (message.pattern == PENSTOCK_BROADCAST && message.peer != ticket.rank);
  return nothing ? 0 : message.count * sdk::dtype_bytes(message.dtype);
}

}  // namespace

void Buffer::resize(uint64_t bytes) {
  const uint64_t n_words = (bytes + 7) / 8;
  if (n_words <= n_words_) return;
  words_ = std::make_unique_for_overwrite<uint64_t[]>(n_words);
  n_words_ = n_words;
}

Exchange::Exchange(std::vector<uint32_t> members, Delay delay)
    : members_(std::move(members)), delay_(delay), left_(members_.size()) {}

std::string Exchange::name_of(uint32_t rank) const {
  return sdk::text("rank ", rank, " (rank ", members_[rank], " of the world)");
}

uint32_t Exchange::member_of(const Rendezvous& rendezvous, uint32_t part) const {
  if (rendezvous.key.from == Rendezvous::kAll) return part;
  return part == 0 ? rendezvous.key.from : rendezvous.key.to;
}

void Exchange::refuse_if_aborted(const penstock_message& message) const {
  if (!aborted_by_.empty())
    throw sdk::message_error(PENSTOCK_ABORTED, message, "the channel was aborted by ", aborted_by_);
}

Rendezvous& Exchange::meet(const Rendezvous::Key& key, uint32_t n_parts) {
  for (const auto& rendezvous : active_)
    if (rendezvous->key == key) return *rendezvous;
  const auto same_tag = [&](const auto& spare) {
    return spare->key.tag == key.tag && spare->key.from == key.from && spare->key.to == key.to;
  };
  auto found = std::find_if(spare_.begin(), spare_.end(), same_tag);
  if (found == spare_.end() && spare_.size() >= kMostSpareRendezvous) found = spare_.begin();
  if (found == spare_.end()) {
    active_.push_back(std::make_unique<Rendezvous>());
  } else {
    active_.push_back(std::move(*found));
    spare_.erase(found);
  }
  Rendezvous& rendezvous = *active_.back();
  rendezvous.key = key;
  rendezvous.parts.resize(n_parts);
  return rendezvous;
}

void Exchange::submit(Ticket& ticket) {
  const penstock_message& message = ticket.message;
  const uint32_t pattern = message.pattern;
  Rendezvous::Key key{message.tag, Rendezvous::kAll, Rendezvous::kAll, 0};
  ticket.part = ticket.rank;
  if (is_pair(pattern)) {
    key.from = pattern == PENSTOCK_SEND ? ticket.rank : message.peer;
    key.to = pattern == PENSTOCK_SEND ? message.peer : ticket.rank;
    ticket.part = pattern == PENSTOCK_SEND ? 0 : 1;
  }
  Part* part;
  {
    std::lock_guard lock(mutex_);
    refuse_if_aborted(message);
    key.turn = turns_[{is_pair(pattern) ? ticket.part : ticket.rank, key.tag, key.from, key.to}]++;
    ticket.rendezvous = &meet(key, is_pair(pattern) ? 2 : size());
    part = &ticket.rendezvous->parts[ticket.part];
  }
  // The data is copied outside the lock, because no other rank reads this part before it has
  // arrived.
  const uint64_t bytes = bytes_brought(ticket);
  part->bytes.resize(bytes);
  if (bytes != 0) std::memcpy(part->bytes.data(), message.send, bytes);
  std::lock_guard lock(mutex_);
  arrive(*ticket.rendezvous, ticket);
}

void Exchange::arrive(Rendezvous& rendezvous, const Ticket& ticket) {
  const penstock_message& message = ticket.message;
  Part& part = rendezvous.parts[ticket.part];
  part.pattern = message.pattern;
  part.reduction = message.reduction;
  part.dtype = message.dtype;
  part.peer = message.peer;
  part.count = message.count;
  part.counts.clear();
  if (message.pattern == PENSTOCK_ALL_TO_ALL)
    part.counts.assign(message.send_counts, message.send_counts + size());
  if (message.pattern == PENSTOCK_REDUCE_SCATTER)
    part.counts.assign(message.receive_counts, message.receive_counts + size());
  part.arrived = true;
  if (++rendezvous.n_arrived != rendezvous.parts.size()) return;
  check_parts(rendezvous);
  if (rendezvous.disagreement.empty() && sdk::is_reduction(message.pattern))
    prepare_reduction(rendezvous);
  if (delay_.any()) take_link(rendezvous);
}

// Computes when the message ends; called when its last part has arrived. The message follows the
// messages that are on the link.
void Exchange::take_link(Rendezvous& rendezvous) {
  using Clock = std::chrono::steady_clock;
  uint64_t bytes = 0;
  for (const Part& part : rendezvous.parts)
    if (part.pattern != PENSTOCK_BARRIER && part.pattern != PENSTOCK_RECEIVE)
      bytes = std::max(bytes, part.count * sdk::dtype_bytes(part.dtype));
  const std::chrono::duration<double, std::micro> takes(delay_.latency_us +
                                                        delay_.us_per_byte * double(bytes));
  rendezvous.over = link_free_ =
      std::max(link_free_, Clock::now()) + std::chrono::duration_cast<Clock::duration>(takes);
}

// Compares the parts. If they disagree, every member gets an equal error.
void Exchange::check_parts(Rendezvous& rendezvous) const {
  if (rendezvous.key.from != Rendezvous::kAll) return;  // the receiver compares
  const Part& first = rendezvous.parts[0];
  for (uint32_t r = 1; r < size(); ++r) {
    const Part& part = rendezvous.parts[r];
    const auto differ = [&](const char* what, const auto& mine, const auto& theirs) {
      rendezvous.disagreement = sdk::text("ranks disagree on the ", what, ": rank 0 has ", mine,
                                          ", rank ", r, " has ", theirs);
    };
    if (part.pattern != first.pattern)
      return differ("pattern", sdk::pattern_name(first.pattern), sdk::pattern_name(part.pattern));
    if (part.pattern == PENSTOCK_BARRIER) continue;
    if (part.dtype != first.dtype) return differ("dtype", first.dtype, part.dtype);
    if (part.pattern == PENSTOCK_BROADCAST && part.peer != first.peer)
      return differ("root", first.peer, part.peer);
    const bool equal_counts = sdk::is_reduction(part.pattern) || part.pattern == PENSTOCK_BROADCAST;
    if (equal_counts && part.count != first.count) return differ("count", first.count, part.count);
    if (!sdk::is_reduction(part.pattern)) continue;
    if (part.reduction != first.reduction)
      return differ("reduction", first.reduction, part.reduction);
    for (size_t i = 0; i < part.counts.size(); ++i)
      if (part.counts[i] != first.counts[i])
        return differ(sdk::text("count of rank ", i).c_str(), first.counts[i], part.counts[i]);
  }
}

// True when all parts that the ticket needs have arrived, they agree, and the simulated link has
// carried them.
bool Exchange::gathered(const Ticket& ticket) {
  const penstock_message& message = ticket.message;
  const Rendezvous& rendezvous = *ticket.rendezvous;
  std::lock_guard lock(mutex_);
  refuse_if_aborted(message);
  std::string missing;
  for (uint32_t p = 0; p < rendezvous.parts.size(); ++p) {
    const uint32_t member = member_of(rendezvous, p);
    if (rendezvous.parts[p].arrived) continue;
    if (left_[member])
      throw sdk::message_error(PENSTOCK_PEER_FAILED, message, name_of(member),
                               " left before its part came");
    if (message.pattern != PENSTOCK_SEND)
      missing += (missing.empty() ? "" : ", ") + std::to_string(member);
  }
  if (missing.empty()) {
    if (!rendezvous.disagreement.empty())
      throw sdk::message_error(PENSTOCK_MISMATCH, message, rendezvous.disagreement);
    return !delay_.any() || std::chrono::steady_clock::now() >= rendezvous.over;
  }
  const auto waited = std::chrono::steady_clock::now() - ticket.submitted;
  if (message.deadline_us != 0 && waited > std::chrono::microseconds(message.deadline_us))
    throw sdk::message_error(PENSTOCK_DEADLINE_EXCEEDED, message, "nothing came from ranks ",
                             missing, " within ", sdk::seconds_text(message.deadline_us));
  return false;
}

bool Exchange::progress(Ticket& ticket) {
  if (!ticket.done) ticket.done = gathered(ticket) && transfer(ticket, size());
  return ticket.done;
}

void Exchange::release(Ticket& ticket) {
  std::lock_guard lock(mutex_);
  ticket.rendezvous->parts[ticket.part].released = true;
  recycle_finished(*ticket.rendezvous);
}

// Recycles the rendezvous if no member will read it again.
void Exchange::recycle_finished(Rendezvous& rendezvous) {
  for (uint32_t p = 0; p < rendezvous.parts.size(); ++p) {
    const Part& part = rendezvous.parts[p];
    if (!part.released && (part.arrived || !left_[member_of(rendezvous, p)])) return;
  }
  const auto found = std::find_if(active_.begin(), active_.end(),
                                  [&](const auto& active) { return active.get() == &rendezvous; });
  for (Part& part : rendezvous.parts) part.arrived = part.released = false;
  rendezvous.n_arrived = 0;
  rendezvous.disagreement.clear();
  rendezvous.n_segments = 0;
  rendezvous.next_segment = 0;
  rendezvous.n_reduced = 0;
  spare_.push_back(std::move(*found));
  active_.erase(found);
}

void Exchange::abort(uint32_t rank) {
  std::lock_guard lock(mutex_);
  if (aborted_by_.empty()) aborted_by_ = name_of(rank);
}

bool Exchange::leave(uint32_t rank) {
  std::lock_guard lock(mutex_);
  if (!left_[rank]) ++n_left_;
  left_[rank] = true;
  return n_left_ == size();
}

}  // namespace penstock::loopback

// See messages.hpp.
#include "messages.hpp"

#include "direct.hpp"

#include <kernels/message.hpp>

#include <cstring>

namespace penstock::collectives {

namespace {

// Rounds up to whole words, so that no element is cut.
uint64_t whole_words(uint64_t bytes) {
  return (bytes + 7) / 8 * 8;
}

void refuse_if_aborted(const Channel& channel, const penstock_message& message) {
  if (channel.aborted)
    throw sdk::message_error(PENSTOCK_ABORTED, message, "the channel was aborted");
}

bool lies_on_device(const penstock_message& message) {
  return message.pattern != PENSTOCK_BARRIER && message.exec != nullptr &&
         message.exec->device_type > PENSTOCK_DEVICE_CPU;
}

void refuse_on_device(const Channel& channel, const penstock_message& message) {
  if (!lies_on_device(message)) return;
  if (!channel.takes_devices)
    throw sdk::message_error(PENSTOCK_INVALID_ARGUMENT, message,
                             "it lies in memory of a device, which this transport does not take "
                             "here; bring it to host memory first");
  if (sdk::is_reduction(message.pattern))
    throw sdk::message_error(PENSTOCK_INVALID_ARGUMENT, message,
                             "it lies in memory of a device, and this transport adds up in host "
                             "memory; bring it there first");
}

bool progress_whole(const Ticket& ticket) {
  if (ticket.n_requests != 0) return false;
  if (ticket.own_bytes != 0) std::memcpy(ticket.own_to, ticket.own_from, ticket.own_bytes);
  return true;
}

}  // namespace

Sizes::Sizes(const sdk::Options& values)
    : small_bytes(static_cast<uint64_t>(values.integer("small_bytes"))),
      segment_bytes(static_cast<uint64_t>(values.integer("segment_bytes"))) {}

sdk::Option Sizes::small_option() {
  return sdk::integer_option("small_bytes", 4096)
      .at_least(0)
      .at_most(1 << 20)
      .unit("bytes")
      .summary("all-reduces up to this size take one step instead of two");
}

sdk::Option Sizes::segment_option() {
  return sdk::integer_option("segment_bytes", 0)
      .at_least(0)
      .at_most(static_cast<int64_t>(kLongSegment))
      .unit("bytes")
      .summary("size of the segments of a message; 0: 262144 within a host, 61440 between hosts");
}

void describe(penstock_collective_traits& traits) {
  traits.patterns = sdk::transport_patterns();
  traits.dtypes = kernels::reducible_dtypes();
  traits.device_types = uint64_t(1) << PENSTOCK_DEVICE_CPU;
  traits.abort_bound_us = 100'000;
  traits.flags = PENSTOCK_COLLECTIVE_TRANSPORT | PENSTOCK_COLLECTIVE_SAME_BITS |
                 PENSTOCK_COLLECTIVE_RANK_ORDER;
  traits.max_in_flight = 0;
}

void volume(const Sizes& sizes, uint32_t pattern, uint32_t hosts, uint32_t ranks_per_host,
            uint64_t bytes, penstock_volume& within, penstock_volume& between) {
  sdk::direct_volume(pattern, hosts, ranks_per_host, bytes, within, between);
  if (pattern != PENSTOCK_ALL_REDUCE || bytes > sizes.small_bytes) return;
  // One step: every rank sends all its data to every rank.
  const double near = ranks_per_host - 1.0;
  const double far = static_cast<double>(ranks_per_host) * (hosts - 1.0);
  const auto one_step = [&](penstock_volume& volume, double peers) {
    volume.startups = peers;
    volume.bytes = volume.reduced_bytes = peers * static_cast<double>(bytes);
  };
  one_step(within, near);
  one_step(between, far);
}

void set_up(Channel& channel, const penstock_group& group, const Sizes& sizes) {
  channel.rank = group.rank;
  channel.size = group.size;
  channel.small_bytes = whole_words(sizes.small_bytes);
  channel.opening_bytes = std::max(channel.small_bytes, kInlineBytes);
  const bool one_host = std::all_of(group.hosts, group.hosts + group.size,
                                    [&](uint32_t host) { return host == group.hosts[0]; });
  channel.segment = sizes.segment_bytes != 0 ? whole_words(sizes.segment_bytes)
                    : one_host               ? kLongSegment
                                             : kShortSegment;
}

Ticket* submit(Channel& channel, const penstock_message& message) {
  sdk::check_message(message, channel.size);
  refuse_on_device(channel, message);
  refuse_if_aborted(channel, message);
  Ticket& ticket = take_ticket(channel);
  ticket.channel = &channel;
  ticket.message = message;
  ticket.submitted = ticket.heard = std::chrono::steady_clock::now();
  ticket.done = ticket.reported = ticket.small = false;
  ticket.on_device = lies_on_device(message);
  ticket.asked = channel.round;
  ticket.failure_code = PENSTOCK_OK;
  ticket.thrown = nullptr;
  ticket.n_expected = ticket.n_opened = 0;
  ticket.own_bytes = ticket.own_copied = 0;
  try {
    ticket.n_requests = channel.wire->carry(ticket);
    ticket.whole = ticket.n_requests != 0;
    if (!ticket.whole) start_direct(ticket);
  } catch (...) {
    give_back(ticket);
    throw;
  }
  return &ticket;
}

bool progress(Ticket& ticket) {
  if (ticket.done) return true;
  Channel& channel = *ticket.channel;
  const penstock_message& message = ticket.message;
  refuse_if_aborted(channel, message);
  // The second progress call of a ticket in a round tests the wire, for all messages.
  if (ticket.asked == channel.round) collect(channel);
  ticket.asked = channel.round;
  if (ticket.thrown != nullptr) std::rethrow_exception(ticket.thrown);
  ticket.done = ticket.whole ? progress_whole(ticket) : progress_direct(ticket);
  if (ticket.done || message.deadline_us == 0) return ticket.done;
  if (channel.now - ticket.submitted > std::chrono::microseconds(message.deadline_us))
    throw sdk::message_error(PENSTOCK_DEADLINE_EXCEEDED, message, "not done within ",
                             sdk::seconds_text(message.deadline_us), "; it waits for ",
                             silent_ranks(ticket));
  return false;
}

void release(Ticket& ticket) {
  Channel& channel = *ticket.channel;
  give_back(ticket);
  if (channel.aborted && ticket.lost) settle(channel, ticket);
}

}  // namespace penstock::collectives

// The message functions that all transports over a wire share (penstock/collective.hpp). Each
// transport itself implements its start and end, its wire, and the opening of channels.
#pragma once

#include "ticket.hpp"

#include <penstock/options.hpp>

#include <kernels/reduce.hpp>

namespace penstock::collectives {

// The size options of such a transport, and their values.
struct Sizes {
  Sizes(uint64_t small, uint64_t segment) : small_bytes(small), segment_bytes(segment) {}
  explicit Sizes(const sdk::Options& values);
  static sdk::Option small_option();
  static sdk::Option segment_option();

  uint64_t small_bytes;
  uint64_t segment_bytes;  // 0: depends on the hosts of the ranks
};

// Fills in the patterns, dtypes, device, flags and promises of these algorithms.
void describe(penstock_collective_traits& traits);

// As penstock_collective.volume.
void volume(const Sizes& sizes, uint32_t pattern, uint32_t hosts, uint32_t ranks_per_host,
            uint64_t bytes, penstock_volume& within, penstock_volume& between);

// Sets up a fresh channel for the group; the caller must add the wire.
void set_up(Channel& channel, const penstock_group& group, const Sizes& sizes);

// As in penstock_collective. After an abort `release` gives the wire a moment to let go of buffers.
Ticket* submit(Channel& channel, const penstock_message& message);
bool progress(Ticket& ticket);
void release(Ticket& ticket);

// The functions above as members, from which a transport's class inherits.
class OverWire {
 public:
  using Channel = collectives::Channel;
  using Ticket = collectives::Ticket;
  static constexpr uint64_t kMeanDtypes = kernels::mean_dtypes();

  explicit OverWire(const Sizes& sizes) : sizes_(sizes) {}
  void volume(uint32_t pattern, uint32_t hosts, uint32_t ranks_per_host, uint64_t bytes,
              penstock_volume& within, penstock_volume& between) const {
    collectives::volume(sizes_, pattern, hosts, ranks_per_host, bytes, within, between);
  }
  Ticket* submit(Channel& channel, const penstock_message& message) {
    return collectives::submit(channel, message);
  }
  bool progress(Ticket& ticket) { return collectives::progress(ticket); }
  void release(Ticket* ticket) { collectives::release(*ticket); }
  void abort(Channel& channel) { channel.aborted = true; }

 protected:
  const Sizes sizes_;
};

}  // namespace penstock::collectives

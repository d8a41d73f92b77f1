// What a transport over a wire does with messages: the middle of its class
// (penstock/collective.hpp). Its own part is its life, the wire, and who may open which channel.
#pragma once

#include "ticket.hpp"

#include <penstock/options.hpp>

#include <kernels/reduce.hpp>

namespace penstock::collectives {

// Options that such a transport has, and what they say.
struct Sizes {
  Sizes(uint64_t small, uint64_t segment) : small_bytes(small), segment_bytes(segment) {}
  explicit Sizes(const sdk::Options& values);
  static sdk::Option small_option();
  static sdk::Option segment_option();

  uint64_t small_bytes;
  uint64_t segment_bytes;  // 0: by where the ranks are
};

// Patterns, dtypes, device, flags and promises of the algorithms here.
void describe(penstock_collective_traits& traits);

// As penstock_collective.volume.
void volume(const Sizes& sizes, uint32_t pattern, uint32_t hosts, uint32_t ranks_per_host,
            uint64_t bytes, penstock_volume& within, penstock_volume& between);

// Sets up a fresh channel for the group; the wire is the caller's to add.
void set_up(Channel& channel, const penstock_group& group, const Sizes& sizes);

// As in penstock_collective. After an abort `release` gives the wire a moment to let go of buffers.
Ticket* submit(Channel& channel, const penstock_message& message);
bool progress(Ticket& ticket);
void release(Ticket& ticket);

// The same as members, for a transport's class to inherit.
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

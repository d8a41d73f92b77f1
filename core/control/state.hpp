// The state and the decisions of the control server, without sockets or clocks: members, the
// key-value store, rendezvous, failures.
//
// For one thread. Takes whole frames and the time, and passes frames for ranks to `send`.
#pragma once

#include "core/control/members.hpp"
#include "core/control/patience.hpp"
#include "core/control/protocol.hpp"
#include "core/control/rendezvous_table.hpp"
#include "core/control/state_options.hpp"
#include "core/control/store.hpp"

#include <memory>
#include <string_view>

namespace penstock::control {

class State {
 public:
  using Options = StateOptions;
  State(const Options& options, Send send);

  // A rank is connected: welcomes it, and notifies all ranks if it is the last. Refuses a rank
  // outside the run and a rank that joined before.
  Status join(uint32_t rank, uint64_t now_us);
  // Another process has connected as a rank that is already present; `reason` says so. The second
  // process may be the right one. Therefore all ranks are notified and the run ends, unless the run
  // is older than its deadline: then only rank 0 is warned.
  void has_twin(std::string_view reason, uint64_t now_us);
  // Handles a frame of a member. An error means that the frame is illegal; the member then counts
  // as lost.
  Status receive(uint32_t rank, std::string_view body, uint64_t now_us);
  // A datagram shows that the member is alive; its connection has no news.
  void lives(uint32_t rank, uint64_t now_us) { parts_->members.lives(rank, now_us); }
  // The member's connection has ended; `how` says how. After a goodbye this is not a failure.
  void lost(uint32_t rank, std::string_view how, uint64_t now_us);
  // Does all work that depends on time alone.
  void tick(uint64_t now_us);
  // The time at which tick has work to do next.
  uint64_t next_us() const;
  // The server itself did not run for a while: this time is not held against the members.
  void forgive(uint64_t now_us) { parts_->members.forgive(now_us); }

  // The server ends: notifies every member that has not said goodbye.
  void close();
  // The members that are connected and have not said goodbye.
  std::vector<uint32_t> present() const;
  bool finished() const { return present().empty(); }
  bool aborted() const { return !abort_reason_.ok(); }

 private:
  // These objects keep references to each other, so they stay at one address.
  struct Parts {
    Parts(const Options& options, Send send);
    Options options;
    const Send send;
    Members members;
    Store store;
    RendezvousTable rendezvous_table;
    Patience patience;
  };
  void take(uint32_t rank, FrameKind kind, Reader& reader, uint64_t now_us);
  void leave(uint32_t rank);
  void abort_all(const Status& reason);
  void abort_if_failed(const Status& failure);
  void notify_abort(uint32_t rank);

  std::unique_ptr<Parts> parts_;
  uint64_t pulse_at_us_;
  Status abort_reason_;
};

}  // namespace penstock::control

// What the control server knows and decides, without sockets or clocks: members, the key-value
// store, meetings, failures.
//
// One thread. It is fed whole frames and the time, and hands out frames for ranks through `send`.
#pragma once

#include "core/control/meetings.hpp"
#include "core/control/members.hpp"
#include "core/control/patience.hpp"
#include "core/control/protocol.hpp"
#include "core/control/state_options.hpp"
#include "core/control/store.hpp"

#include <memory>
#include <string_view>

namespace penstock::control {

class State {
 public:
  using Options = StateOptions;
  State(const Options& options, Send send);

  // A rank is connected: it is welcomed, and all are told when it is the last. Refused: a rank
  // outside the run or one that joined before.
  Status join(uint32_t rank, uint64_t now_us);
  // Another process has come as a rank that is there, and `reason` says so. It may be the right
  // one: all hear it, unless the run is older than its deadline, when only rank 0 is warned.
  void has_twin(std::string_view reason, uint64_t now_us);
  // A frame of a member. An error means that it is not a legal frame; the member is lost then.
  Status receive(uint32_t rank, std::string_view body, uint64_t now_us);
  // A member has shown that it lives, elsewhere than on its connection: nothing else.
  void lives(uint32_t rank, uint64_t now_us) { parts_->members.lives(rank, now_us); }
  // The member's connection has ended, `how` says in which way. Not a failure after its goodbye.
  void lost(uint32_t rank, std::string_view how, uint64_t now_us);
  // Everything that depends on time alone.
  void tick(uint64_t now_us);
  // When tick has something to do next.
  uint64_t next_us() const;
  // The server itself did not run for a while: members cannot be blamed for that time.
  void forgive(uint64_t now_us) { parts_->members.forgive(now_us); }

  // The server ends: who has not said goodbye is told.
  void close();
  // Nobody is connected any more who has not said goodbye.
  bool finished() const;
  bool aborted() const { return !abort_reason_.ok(); }

 private:
  // They know each other's places.
  struct Parts {
    Parts(const Options& options, Send send);
    Options options;
    const Send send;
    Members members;
    Store store;
    Meetings meetings;
    Patience patience;
  };
  void take(uint32_t rank, FrameKind kind, Reader& reader, uint64_t now_us);
  void leave(uint32_t rank);
  void abort_all(const Status& reason);
  void abort_if_failed(const Status& failure);
  void tell_abort(uint32_t rank);

  std::unique_ptr<Parts> parts_;
  uint64_t pulse_at_us_;
  Status abort_reason_;
};

}  // namespace penstock::control

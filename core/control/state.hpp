// What the control server knows and decides, without sockets or clocks: members, the key-value
// store, meetings, failures.
//
// One thread. It is fed whole frames and the time, and hands out frames for ranks through `send`.
#pragma once

#include "core/control/protocol.hpp"

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace penstock::control {

class State {
 public:
  struct Options {
    uint32_t size = 1;
    uint64_t deadline_us = 0;  // a member silent for longer has failed
    uint64_t pulse_us = 0;     // interval of the server's own heartbeat
    uint64_t warning_us =
        0;  // age of a wait at its first warning, and the interval of repeats; 0: no warnings
    uint64_t start_us = 0;    // now
    uint64_t meeting_us = 0;  // from then on, for all to join; 0: the deadline
    uint64_t settle_us = 0;   // from then on, before which nobody goes on
    // Ranks that live are waited for this long, in operations and steps; 0: without an end.
    uint64_t busy_limit_us = 0;
    // Ranks that wait for each other, so that none can go on, are let go after this; 0: never.
    uint64_t circle_us = 0;
  };
  // Must not call back. Frames for ranks that have no connection are dropped by whoever sends.
  using Send = std::function<void(uint32_t rank, std::string frame)>;
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
  void lives(uint32_t rank, uint64_t now_us);
  // The member's connection has ended, `how` says in which way. Not a failure after its goodbye.
  void lost(uint32_t rank, std::string_view how, uint64_t now_us);
  // Everything that depends on time alone.
  void tick(uint64_t now_us);
  // When tick has something to do next.
  uint64_t next_us() const;
  // The server itself did not run for a while: members cannot be blamed for that time.
  void forgive(uint64_t now_us);

  // The server ends: who has not said goodbye is told.
  void close();
  // Nobody is connected any more who has not said goodbye.
  bool finished() const;
  bool aborted() const { return !abort_reason_.ok(); }

 private:
  enum class Presence { absent, present, left, failed };
  struct Member {
    Presence presence = Presence::absent;
    uint64_t heard_us = 0;         // in whichever way
    bool sends_datagrams = false;  // and they come
    bool hears_datagrams = false;  // those of rank 0
    std::string note;
    uint64_t note_us = 0;                                     // when it came
    std::map<std::string, uint64_t, std::less<>> steps_done;  // per set
    // Of a rank that has joined: the newest step that it was told of, and whether that is over.
    std::map<std::string, std::pair<uint64_t, uint32_t>> told;
  };
  struct PendingGet {
    uint32_t rank;
    uint64_t id;
    std::string key;
    uint64_t timeout_us;
    uint64_t until_us;
  };
  struct Arrival {
    uint64_t id;
    std::string signature;
    std::string detail;
    bool blocked = false;  // the rank's program goes no further until it is answered
    Audience audience = Audience::all;
    IfJoined if_joined = IfJoined::comes;
    std::string zeros = {};
  };
  struct Meeting {
    std::map<uint32_t, Arrival> arrivals;
    std::string set;    // Purpose::step
    std::string holds;  // Purpose::operation: the set whose steps wait for it
    uint64_t step = 0;
    uint64_t first_us = 0;
    uint64_t last_us = 0;         // when the newest came
    uint64_t circle_us = kNever;  // since when it is part of a circle
    uint64_t until_us = kNever;
    uint64_t warn_us = kNever;
    // After a failure the meeting stays until every member was told, so that late ones do not wait
    // in vain.
    Status failure;
    std::set<uint32_t> told;
  };
  using MeetingKey =
      std::tuple<Purpose, std::string, std::vector<uint32_t>>;  // purpose, topic, ranks
  using Meetings = std::map<MeetingKey, Meeting>;

  void begin_if_all_are_here(uint64_t now_us);
  void look_for_absent(uint64_t now_us);
  void put(uint32_t rank, Reader& reader);
  void get(uint32_t rank, Reader& reader, uint64_t now_us);
  void meet(uint32_t rank, Meet message, uint64_t now_us);
  void withdraw(uint32_t rank, uint64_t id);
  void block(uint32_t rank, uint64_t id);
  Status check(uint32_t rank, const Meet& message) const;
  void leave(uint32_t rank);
  // state_answer.cpp: how meetings end
  void complete(Meetings::iterator meeting);
  void answer_operations();
  void fail(Meetings::iterator meeting, Status failure);
  void forget_if_told(Meetings::iterator meeting);
  // state_join.cpp: ranks whose data is at an end
  void has_joined(uint32_t rank);
  bool only_joined_are_missing(const MeetingKey& key, const Meeting& meeting) const;
  void go_on_without_joined(Meetings::iterator meeting);
  void tell_joined(uint32_t rank, const StepNews& news);
  // state_stall.cpp: whom ranks that live wait for, and for how long
  void look_at_meetings(uint64_t now_us);
  void find_circles(uint64_t now_us);
  bool in_circle(const MeetingKey& key, const Meeting& meeting,
                 const std::set<const Meeting*>& stuck) const;
  bool is_held(const Meeting& step, const std::set<const Meeting*>& stuck) const;
  void end_circle(const std::vector<Meetings::iterator>& circle);
  void warn(const MeetingKey& key, const Meeting& meeting, uint64_t now_us);
  bool may_warn(uint64_t now_us);
  std::string waited_out(const MeetingKey& key, const Meeting& meeting, uint64_t now_us) const;
  Status left_behind(const MeetingKey& key, const Meeting& meeting, uint32_t rank) const;
  void look_at_datagrams(uint64_t now_us);
  void heard(Member& member, uint64_t now_us);
  bool is_overdue(const MeetingKey& key, const Meeting& meeting, uint64_t now_us) const;
  void abort_all(const Status& reason);
  void tell_abort(uint32_t rank);
  void reply(uint32_t rank, uint64_t id, Status status);

  // Those that have not come, and whose coming would end the wait.
  std::vector<uint32_t> missing(const MeetingKey& key, const Meeting& meeting) const;
  std::vector<uint32_t> in_state(Presence presence) const;
  bool is_needed(const Meeting& meeting, uint32_t rank) const;
  std::string last_did(uint32_t rank, uint64_t now_us) const;

  Options options_;
  Send send_;
  std::vector<Member> members_;
  std::map<std::string, std::string, std::less<>> values_;
  std::vector<PendingGet> gets_;
  Meetings meetings_;
  uint64_t next_serial_ = 0;
  // To operations that ended since the last tick, in the order of their serials. All members of one
  // find the same others beside it and may carry them out together; those that a set's steps wait
  // for are the set's, and count for nobody.
  struct Answer {
    uint32_t rank;  // that hears it
    Reply reply;
    bool counts;
    std::optional<AddZeros> zeros = {};  // instead of the reply: it has joined
  };
  std::vector<Answer> answers_;
  uint64_t pulse_at_us_;
  uint64_t begun_us_ = kNever;  // when all had come, and were told so
  uint64_t warn_of_absent_us_;
  uint64_t warns_since_us_ = 0;  // in the interval that began then
  uint64_t n_warned_ = 0, n_not_warned_ = 0;
  // When a member was last heard again that had been silent for long, and for how long it was.
  uint64_t back_us_ = 0, away_us_ = 0;
  uint64_t ask_for_datagrams_us_ = kNever;  // when it is looked whether they get through
  std::vector<uint32_t> joined_;  // their data is at an end; in the order in which they said so
  Status abort_reason_;
};

}  // namespace penstock::control

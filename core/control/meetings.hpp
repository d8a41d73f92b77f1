// Where ranks meet: they come to a topic, one by one, and all are answered when the last one has
// come, or none can come any more. Ranks whose data is at an end are no longer waited for.
#pragma once

#include "core/control/members.hpp"

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace penstock::control {

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

  std::vector<uint32_t> ranks() const;  // that have come
};

// Purpose, topic, ranks.
using MeetingKey = std::tuple<Purpose, std::string, std::vector<uint32_t>>;
std::string name_of(const MeetingKey& key);

class Meetings {
 public:
  using Map = std::map<MeetingKey, Meeting>;

  // All outlive it.
  Meetings(const StateOptions& options, const Send& send, Members& members)
      : options_(options), send_(send), members_(members) {}

  void meet(uint32_t rank, Meet message, uint64_t now_us);
  void withdraw(uint32_t rank, uint64_t id);
  void block(uint32_t rank, uint64_t id);
  void leave(uint32_t rank);                              // with its goodbye
  void tell_joined(uint32_t rank, const StepNews& news);  // of a step that `rank` is in
  // To operations that have ended since the last time, in the order of their serials.
  void answer_operations();
  void fail(Map::iterator meeting, Status failure);
  void clear() { meetings_.clear(); }

  // A step that cannot be finished ends the run; until it is ended nothing else is called.
  const Status& run_failure() const { return run_failure_; }
  Map& all() { return meetings_; }
  const Map& all() const { return meetings_; }
  // Those that have not come, and whose coming would end the wait.
  std::vector<uint32_t> missing(const MeetingKey& key, const Meeting& meeting) const;

 private:
  // All members of an operation find the same others beside it and may carry them out together;
  // those that a set's steps wait for are the set's, and count for nobody.
  struct Answer {
    uint32_t rank;  // that hears it
    Reply reply;
    bool counts;
    std::optional<AddZeros> zeros = {};  // instead of the reply: it has joined
  };
  Status check(uint32_t rank, const Meet& message) const;
  void begin(Meeting& meeting, const Meet& message, uint64_t now_us) const;
  bool is_needed(const Meeting& meeting, uint32_t rank) const;
  Status left_behind(const MeetingKey& key, const Meeting& meeting, uint32_t rank) const;
  void complete(Map::iterator meeting);
  void forget_if_told(Map::iterator meeting);
  void reply(uint32_t rank, uint64_t id, Status status) const;
  // ---- ranks whose data is at an end ----
  void has_joined(uint32_t rank);
  bool only_joined_are_missing(const MeetingKey& key, const Meeting& meeting) const;
  void go_on_without_joined(Map::iterator meeting);

  const StateOptions& options_;
  const Send& send_;
  Members& members_;
  Map meetings_;
  Status run_failure_;
  uint64_t next_serial_ = 0;
  std::vector<Answer> answers_;
  std::vector<uint32_t> joined_;  // in the order in which they said so
};

}  // namespace penstock::control

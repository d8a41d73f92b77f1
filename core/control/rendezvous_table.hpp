// The rendezvous of ranks: ranks come to a topic one by one, and all are answered when the last
// rank has come or when a rank can no longer come. Ranks without more data are not waited for.
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
  bool blocked = false;  // the rank's program cannot continue until it is answered
  Audience audience = Audience::all;
  IfJoined if_joined = IfJoined::comes;
  std::string zeros = {};
};

struct Rendezvous {
  std::map<uint32_t, Arrival> arrivals;
  std::string set;    // Purpose::step
  std::string holds;  // Purpose::operation: the set whose steps wait for it
  uint64_t step = 0;
  uint64_t first_us = 0;
  uint64_t last_us = 0;         // the time at which the newest rank came
  uint64_t circle_us = kNever;  // the time since which it is part of a circle
  uint64_t until_us = kNever;
  uint64_t warn_us = kNever;
  // After a failure the rendezvous stays until every member was notified, so that late members do
  // not wait in vain.
  Status failure;
  std::set<uint32_t> notified;

  std::vector<uint32_t> ranks() const;  // the ranks that have come
};

// Purpose, topic, ranks.
using RendezvousKey = std::tuple<Purpose, std::string, std::vector<uint32_t>>;
std::string name_of(const RendezvousKey& key);

class RendezvousTable {
 public:
  using Map = std::map<RendezvousKey, Rendezvous>;

  // All must outlive it.
  RendezvousTable(const StateOptions& options, const Send& send, Members& members)
      : options_(options), send_(send), members_(members) {}

  void meet(uint32_t rank, Meet message, uint64_t now_us);
  void withdraw(uint32_t rank, uint64_t id);
  void block(uint32_t rank, uint64_t id);
  void leave(uint32_t rank);                                // the rank has said goodbye
  void notify_joined(uint32_t rank, const StepNews& news);  // a step that `rank` is in
  // Answers the operations that ended since the last call, in the order of their serials.
  void answer_operations();
  void fail(Map::iterator rendezvous, Status failure);
  void clear() { rendezvous_table_.clear(); }

  // A step that cannot be finished ends the run; nothing else may be called before the run is
  // ended.
  const Status& run_failure() const { return run_failure_; }
  Map& all() { return rendezvous_table_; }
  const Map& all() const { return rendezvous_table_; }
  // The missing ranks whose arrival would end the wait.
  std::vector<uint32_t> missing(const RendezvousKey& key, const Rendezvous& rendezvous) const;

 private:
  // The answer to a finished operation. All members of an operation find equal neighbours of it and
  // may execute them together. An operation that the steps of a set wait for belongs to the set and
  // is not counted.
  struct Answer {
    uint32_t rank;  // the receiver
    Reply reply;
    bool counts;
    std::optional<AddZeros> zeros = {};  // sent instead of the reply, because the rank has joined
  };
  Status check(uint32_t rank, const Meet& message) const;
  void begin(Rendezvous& rendezvous, const Meet& message, uint64_t now_us) const;
  bool is_needed(const Rendezvous& rendezvous, uint32_t rank) const;
  Status has_left(const RendezvousKey& key, const Rendezvous& rendezvous, uint32_t rank) const;
  void complete(Map::iterator rendezvous);
  void forget_if_notified(Map::iterator rendezvous);
  void reply(uint32_t rank, uint64_t id, Status status) const;
  // ---- ranks without more data ----
  void has_joined(uint32_t rank);
  bool only_joined_are_missing(const RendezvousKey& key, const Rendezvous& rendezvous) const;
  void go_on_without_joined(Map::iterator rendezvous);

  const StateOptions& options_;
  const Send& send_;
  Members& members_;
  Map rendezvous_table_;
  Status run_failure_;
  uint64_t next_serial_ = 0;
  std::vector<Answer> answers_;
  std::vector<uint32_t> joined_;  // in the order in which they joined
};

}  // namespace penstock::control

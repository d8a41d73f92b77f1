// The ranks of a run in the control server: whether each rank has come, when and by which path it
// was last heard, and the activity that it last reported.
#pragma once

#include "core/control/protocol.hpp"
#include "core/control/state_options.hpp"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock::control {

class Members {
 public:
  enum class Presence { absent, present, left, failed };

  // Both must outlive it.
  Members(const StateOptions& options, const Send& send);

  // ---- arrivals ----
  // Registers and welcomes a connected rank. It refuses a rank outside the run and a rank that
  // joined before.
  Status join(uint32_t rank, uint64_t now_us);
  // Notifies all ranks when the last rank has come.
  void begin_if_all_are_here(uint64_t now_us);
  // A failure ends the run: some ranks have not come in time. Before that, rank 0 is warned.
  Status look_for_absent(uint64_t now_us);
  // A second process has connected as a rank that is already present. A failure ends the run.
  Status has_twin(std::string_view reason, uint64_t now_us);
  void set(uint32_t rank, Presence presence) { members_[rank].presence = presence; }

  // ---- signs of life ----
  void heard(uint32_t rank, uint64_t now_us);
  void lives(uint32_t rank, uint64_t now_us);  // a heartbeat by datagram
  void heard(uint32_t rank, Beat beat, uint64_t now_us);
  // The first rank that was silent for longer than the deadline, and the text that reports it.
  std::optional<std::pair<uint32_t, std::string>> silent(uint64_t now_us) const;
  void look_at_datagrams(uint64_t now_us);  // does its check when it is due
  void forgive(uint64_t now_us);
  // The time at which a member was last heard again after a long silence, and the length of that
  // silence.
  uint64_t back_us() const { return back_us_; }
  uint64_t away_us() const { return away_us_; }

  uint64_t next_us() const;  // the next time at which there is work to do

  uint32_t size() const { return static_cast<uint32_t>(members_.size()); }
  bool is(uint32_t rank, Presence presence) const { return members_[rank].presence == presence; }
  std::vector<uint32_t> in_state(Presence presence) const;
  const std::string& note(uint32_t rank) const { return members_[rank].note; }
  std::string last_did(uint32_t rank, uint64_t now_us) const;
  // How many steps of a set the rank has reported as finished; empty: it has reported nothing about
  // that set.
  std::optional<uint64_t> steps_done(uint32_t rank, const std::string& set) const;
  // For a joined rank: whether this step, and whether it is over, is newer than the last
  // notice that the rank received about the set. If so, it is recorded as sent.
  bool is_news(uint32_t rank, const std::string& set, std::pair<uint64_t, uint32_t> step);
  void forget_news(uint32_t rank) { members_[rank].notified.clear(); }

 private:
  struct Member {
    Presence presence = Presence::absent;
    uint64_t heard_us = 0;         // by any path
    bool sends_datagrams = false;  // and they arrive here
    bool hears_datagrams = false;  // rank 0's datagrams arrive there
    std::string note;
    uint64_t note_us = 0;                                     // the time of its arrival
    std::map<std::string, uint64_t, std::less<>> steps_done;  // per set
    // For a joined rank: the newest step in a notice that it received, and whether that
    // step is over.
    std::map<std::string, std::pair<uint64_t, uint32_t>> notified;
  };
  void warn(std::string_view text) const;

  const StateOptions& options_;
  const Send& send_;
  std::vector<Member> members_;
  uint64_t begun_us_ = kNever;  // when all ranks had come and were notified
  uint64_t warn_of_absent_us_;
  uint64_t back_us_ = 0, away_us_ = 0;
  uint64_t ask_for_datagrams_us_ = kNever;  // when to check whether datagrams get through
};

}  // namespace penstock::control

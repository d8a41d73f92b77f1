// The ranks of a run as the control server knows them: who has come, when each was last heard and
// by which way, and what it last told of itself.
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

  // Both outlive it.
  Members(const StateOptions& options, const Send& send);

  // ---- arrivals ----
  // A rank is connected, and is welcomed. Refused: a rank outside the run or one that joined
  // before.
  Status join(uint32_t rank, uint64_t now_us);
  // Tells all when the last one has come.
  void begin_if_all_are_here(uint64_t now_us);
  // A failure ends the run: some have not come in time. Before, rank 0 is warned.
  Status look_for_absent(uint64_t now_us);
  // Another process has come as a rank that is there. A failure ends the run.
  Status has_twin(std::string_view reason, uint64_t now_us);
  void set(uint32_t rank, Presence presence) { members_[rank].presence = presence; }

  // ---- signs of life ----
  void heard(uint32_t rank, uint64_t now_us);
  void lives(uint32_t rank, uint64_t now_us);  // by a datagram
  void told(uint32_t rank, Beat beat, uint64_t now_us);
  // The first one that was silent for longer than the deadline, and how that is said.
  std::optional<std::pair<uint32_t, std::string>> silent(uint64_t now_us) const;
  void look_at_datagrams(uint64_t now_us);  // where that is due
  void forgive(uint64_t now_us);
  // When a member was last heard again that had been silent for long, and for how long it was.
  uint64_t back_us() const { return back_us_; }
  uint64_t away_us() const { return away_us_; }

  uint64_t next_us() const;  // when there is something to do

  uint32_t size() const { return static_cast<uint32_t>(members_.size()); }
  bool is(uint32_t rank, Presence presence) const { return members_[rank].presence == presence; }
  std::vector<uint32_t> in_state(Presence presence) const;
  const std::string& note(uint32_t rank) const { return members_[rank].note; }
  std::string last_did(uint32_t rank, uint64_t now_us) const;
  // How many steps of a set it has told to be done; none: of that set it has told nothing.
  std::optional<uint64_t> steps_done(uint32_t rank, const std::string& set) const;
  // Of a rank that has joined: whether this, a step and whether it is over, is newer than what it
  // was told of the set before. It is told then.
  bool is_news(uint32_t rank, const std::string& set, std::pair<uint64_t, uint32_t> step);
  void forget_news(uint32_t rank) { members_[rank].told.clear(); }

 private:
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
  void warn(std::string_view text) const;

  const StateOptions& options_;
  const Send& send_;
  std::vector<Member> members_;
  uint64_t begun_us_ = kNever;  // when all had come, and were told so
  uint64_t warn_of_absent_us_;
  uint64_t back_us_ = 0, away_us_ = 0;
  uint64_t ask_for_datagrams_us_ = kNever;  // when it is looked whether they get through
};

}  // namespace penstock::control

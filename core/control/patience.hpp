// The one policy for ranks that live and do not come, whether others wait for them in a meeting, in
// a named operation or in a step: a warning by name, then for long nothing, then an end.
#pragma once

#include "core/control/meetings.hpp"

#include <set>
#include <string>
#include <vector>

namespace penstock::control {

class Patience {
 public:
  // All outlive it.
  Patience(const StateOptions& options, const Send& send, const Members& members,
           Meetings& meetings)
      : options_(options), send_(send), members_(members), meetings_(meetings) {}

  // Warns of meetings that wait for long, and ends those that have waited for too long; until one
  // of them ends the run.
  void look(uint64_t now_us);
  uint64_t next_us() const;  // when look has something to do

 private:
  // ---- ranks that wait for each other ----
  void find_circles(uint64_t now_us);
  bool in_circle(const MeetingKey& key, const Meeting& meeting,
                 const std::set<const Meeting*>& stuck) const;
  bool is_held(const Meeting& step, const std::set<const Meeting*>& stuck) const;
  void end_circle(const std::vector<Meetings::Map::iterator>& circle);
  // ---- warnings and ends ----
  void warn(const MeetingKey& key, const Meeting& meeting, uint64_t now_us);
  bool may_warn(uint64_t now_us);
  std::string waited_out(const MeetingKey& key, const Meeting& meeting, uint64_t now_us) const;
  bool is_overdue(const MeetingKey& key, const Meeting& meeting, uint64_t now_us) const;

  const StateOptions& options_;
  const Send& send_;
  const Members& members_;
  Meetings& meetings_;
  uint64_t warns_since_us_ = 0;  // in the interval that began then
  uint64_t n_warned_ = 0, n_not_warned_ = 0;
};

}  // namespace penstock::control

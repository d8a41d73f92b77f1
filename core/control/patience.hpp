// The only policy for live ranks that do not come, in a rendezvous, a named operation or a step:
// first a warning by name, then a long wait, then the end of the wait.
#pragma once

#include "core/control/rendezvous_table.hpp"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace penstock::control {

class Patience {
 public:
  // All must outlive it.
  Patience(const StateOptions& options, const Send& send, const Members& members,
           RendezvousTable& rendezvous_table)
      : options_(options), send_(send), members_(members), rendezvous_table_(rendezvous_table) {}

  // Warns about a rendezvous that waits for long, and ends a rendezvous that waited for too
  // long. Stops at the first rendezvous that ends the run.
  void poll(uint64_t now_us);
  uint64_t next_us() const;  // when poll has work to do next

 private:
  // ---- ranks that wait for each other ----
  void find_circles(uint64_t now_us);
  bool in_circle(const RendezvousKey& key, const Rendezvous& rendezvous,
                 const std::set<const Rendezvous*>& stuck) const;
  bool is_held(const Rendezvous& step, const std::set<const Rendezvous*>& stuck) const;
  void end_circle(const std::vector<RendezvousTable::Map::iterator>& circle);
  // ---- warnings and ends ----
  void warn(const RendezvousKey& key, const Rendezvous& rendezvous, uint64_t now_us);
  bool is_news(const RendezvousKey& key, const Rendezvous& rendezvous, uint64_t now_us);
  bool may_warn(uint64_t now_us);
  std::string waited_out(const RendezvousKey& key, const Rendezvous& rendezvous,
                         uint64_t now_us) const;
  bool is_overdue(const RendezvousKey& key, const Rendezvous& rendezvous, uint64_t now_us) const;

  const StateOptions& options_;
  const Send& send_;
  const Members& members_;
  RendezvousTable& rendezvous_table_;
  uint64_t warns_since_us_ = 0;  // start of the interval in which warnings are counted
  uint64_t n_warned_ = 0, n_not_warned_ = 0;
  std::map<std::string, uint64_t> slow_us_;  // by set: the longest wait for messages warned about
};

}  // namespace penstock::control

// The rendezvous point of a run's ranks, which are threads of one process.
#pragma once

#include "exchange.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

struct penstock_group;

namespace penstock::loopback {

// What a rank says of itself when it joins. Name, size and hosts must be equal on all ranks; the
// first one's delay counts.
struct Seat {
  std::string hub;
  uint32_t rank;
  uint32_t size;
  std::vector<uint32_t> hosts;  // of each rank
  Delay delay = {};             // of every group's link
};

// One complete set of ranks. Shared by the instances of its ranks: the last one to leave frees it.
// A hub that is complete gives its name free, so the next ranks to join under it form a new one.
class Hub {
 public:
  explicit Hub(const Seat& first);

  // Waits until all ranks have come. [any] Errors: DEADLINE_EXCEEDED names the missing ranks,
  // MISMATCH ranks that disagree on the size, INVALID_ARGUMENT a rank that came twice.
  static std::shared_ptr<Hub> join(const Seat& seat, uint64_t timeout_us);

  // `rank` sends nothing more: whoever waits for it gets an error. [any]
  void leave(uint32_t rank);

  // What the members of `group` share. Does not wait for them. Every opening is closed once. [any]
  std::shared_ptr<Exchange> open(const penstock_group& group);
  void close(const Exchange& exchange, uint32_t group_rank);

  const uint32_t* hosts() const { return hosts_.data(); }

 private:
  void admit(const Seat& seat);
  std::string missing() const;

  const uint32_t size_;
  const std::vector<uint32_t> hosts_;
  const Delay delay_;

  // Guarded by the lock of the registry while ranks gather; constant afterwards.
  std::vector<bool> present_;
  uint32_t n_present_ = 0;
  bool complete_ = false;

  std::mutex mutex_;  // guards what follows
  std::vector<bool> left_;
  // How often each member has opened a group, and what the members of the n-th opening share until
  // the last has closed it: a group may be opened again before that.
  std::map<uint64_t, std::vector<uint64_t>> n_openings_;
  std::map<std::pair<uint64_t, uint64_t>, std::shared_ptr<Exchange>> exchanges_;
};

}  // namespace penstock::loopback

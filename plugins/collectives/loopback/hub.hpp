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

// The declaration of a rank that joins. Name, size and hosts must be equal on all ranks; the delay
// of the first rank that joins counts.
struct Seat {
  std::string hub;
  uint32_t rank;
  uint32_t size;
  std::vector<uint32_t> hosts;  // the host of each rank
  Delay delay = {};             // the delay of every group's link
};

// One complete set of ranks. The instances of its ranks share the hub; the last rank that leaves
// frees it. A complete hub releases its name, so the next ranks that join under this name form a
// new hub.
class Hub {
 public:
  explicit Hub(const Seat& first);

  // Waits until all ranks have joined. [any] Errors: DEADLINE_EXCEEDED names the missing ranks;
  // MISMATCH: ranks disagree on the size or the hosts; INVALID_ARGUMENT: a rank joined twice.
  static std::shared_ptr<Hub> join(const Seat& seat, uint64_t timeout_us);

  // Reports that `rank` sends nothing more: a member that waits for its message gets an error.
  // [any]
  void leave(uint32_t rank);

  // Opens the exchange that the members of `group` share; does not wait for the other members.
  // Every opening must be closed once. [any]
  std::shared_ptr<Exchange> open(const penstock_group& group);
  void close(const Exchange& exchange, uint32_t group_rank);

  const uint32_t* hosts() const { return hosts_.data(); }

 private:
  void admit(const Seat& seat);
  std::string missing() const;

  const uint32_t size_;
  const std::vector<uint32_t> hosts_;
  const Delay delay_;

  // The lock of the registry guards these members while ranks join; afterwards they are constant.
  std::vector<bool> present_;
  uint32_t n_present_ = 0;
  bool complete_ = false;

  std::mutex mutex_;  // guards the members below
  std::vector<bool> left_;
  // How often each member has opened a group, and the exchange of the n-th opening until its last
  // member has closed it. A group may be opened again before that.
  std::map<uint64_t, std::vector<uint64_t>> n_openings_;
  std::map<std::pair<uint64_t, uint64_t>, std::shared_ptr<Exchange>> exchanges_;
};

}  // namespace penstock::loopback

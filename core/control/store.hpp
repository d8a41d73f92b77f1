// The key-value store of a run: a rank that asks for a key waits until a rank has put it.
#pragma once

#include "core/control/protocol.hpp"
#include "core/control/state_options.hpp"

#include <map>
#include <string>
#include <vector>

namespace penstock::control {

class Store {
 public:
  explicit Store(const Send& send) : send_(send) {}  // must outlive it

  // Each reads the body behind the kind; bytes that are not such a message change nothing.
  void put(uint32_t rank, Reader& reader);
  void get(uint32_t rank, Reader& reader, uint64_t now_us);
  void tick(uint64_t now_us);      // answers the ranks whose timeout has passed
  void leave(uint32_t rank);       // drops the rank's pending requests
  void clear() { gets_.clear(); }  // drops all pending requests
  uint64_t next_us() const;        // the time at which tick has work to do next

 private:
  struct PendingGet {
    uint32_t rank;
    uint64_t id;
    std::string key;
    uint64_t timeout_us;
    uint64_t until_us;
  };
  const Send& send_;
  std::map<std::string, std::string, std::less<>> values_;
  std::vector<PendingGet> gets_;
};

}  // namespace penstock::control

// The key-value store of a run: who asks for a key waits until somebody has put it.
#pragma once

#include "core/control/protocol.hpp"
#include "core/control/state_options.hpp"

#include <map>
#include <string>
#include <vector>

namespace penstock::control {

class Store {
 public:
  explicit Store(const Send& send) : send_(send) {}  // outlives it

  // The reader stands behind the kind; what is not such a message changes nothing.
  void put(uint32_t rank, Reader& reader);
  void get(uint32_t rank, Reader& reader, uint64_t now_us);
  void tick(uint64_t now_us);      // whose time is up hears so
  void leave(uint32_t rank);       // it waits for nothing any more
  void clear() { gets_.clear(); }  // nobody waits any more
  uint64_t next_us() const;        // when tick has something to do

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

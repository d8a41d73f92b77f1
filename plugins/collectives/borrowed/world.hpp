// The ranks between join and leave: hands what has come to the channel that it is for. Used by the
// communication thread only.
#pragma once

#include "relay.hpp"

#include <unordered_map>

namespace penstock::borrowed {

class Wire;

class World {
 public:
  explicit World(std::shared_ptr<Relay> relay) : relay_(std::move(relay)) {}

  Relay& relay() { return *relay_; }

  // The wire of a group, from now until `remove`. It gets what has come for the group before.
  void add(uint64_t group, Wire& wire);
  void remove(uint64_t group) { wires_.erase(group); }

  // Tells the wires what has happened since the last call.
  void progress();

 private:
  const std::shared_ptr<Relay> relay_;
  std::unordered_map<uint64_t, Wire*> wires_;
  std::unordered_map<uint64_t, std::vector<Arrival>> early_;  // of groups that are not open here
  std::vector<Arrival> arrivals_;
  std::vector<Sent> sent_;
  uint32_t n_gone_ = 0;
};

}  // namespace penstock::borrowed

// The ranks between join and leave. The world hands each frame that came to the channel of its
// group. Used by the communication thread only.
#pragma once

#include "relay.hpp"

#include <unordered_map>

namespace penstock::borrowed {

class Wire;

class World {
 public:
  explicit World(std::shared_ptr<Relay> relay) : relay_(std::move(relay)) {}

  Relay& relay() { return *relay_; }

  // Registers the wire of a group until `remove`. The wire gets the frames that came for the group
  // before.
  void add(uint64_t group, Wire& wire);
  void remove(uint64_t group) { wires_.erase(group); }

  // Notifies the wires of everything that happened since the last call.
  void progress();

 private:
  const std::shared_ptr<Relay> relay_;
  std::unordered_map<uint64_t, Wire*> wires_;
  // frames of groups that are not open here
  std::unordered_map<uint64_t, std::vector<Arrival>> early_;
  std::vector<Arrival> arrivals_;
  std::vector<Sent> sent_;
  uint32_t n_gone_ = 0;
};

}  // namespace penstock::borrowed

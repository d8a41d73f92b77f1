// The transports of a run: one transport between all ranks and, if [transport] names them, other
// transports within a host, between hosts, and from device to device.
#pragma once

#include "core/plugin/instances.hpp"

#include <penstock/collective.h>

#include <array>
#include <memory>
#include <string_view>
#include <vector>

namespace penstock {

class Transports {
 public:
  void set(uint32_t level, std::unique_ptr<CollectiveInstance> transport) {
    own_[level - PENSTOCK_LEVEL_WORLD] = std::move(transport);
  }
  CollectiveInstance& world() const { return *own_[0]; }
  bool has_own(uint32_t level) const { return own_[level - PENSTOCK_LEVEL_WORLD] != nullptr; }
  // The transport of the level, or else the transport of all ranks.
  CollectiveInstance& at(uint32_t level) const {
    return has_own(level) ? *own_[level - PENSTOCK_LEVEL_WORLD] : world();
  }
  // The transport with this name among the transports of levels; null: there is none.
  CollectiveInstance* find(std::string_view name) const {
    for (const auto& transport : own_)
      if (transport != nullptr && transport->name() == name) return transport.get();
    return nullptr;
  }
  void set_for_devices(std::unique_ptr<CollectiveInstance> transport) {
    for_devices_ = transport.get();
    own_for_devices_ = std::move(transport);
  }
  // Uses a transport that carries other messages too, because some transports can join only once
  // per process.
  void share_for_devices(CollectiveInstance& of_level) { for_devices_ = &of_level; }
  CollectiveInstance* for_devices() const { return for_devices_; }  // null: none
  // Each transport once, the transport of all ranks first.
  std::vector<CollectiveInstance*> all() const {
    std::vector<CollectiveInstance*> transports;
    for (const auto& transport : own_)
      if (transport != nullptr) transports.push_back(transport.get());
    if (own_for_devices_ != nullptr) transports.push_back(own_for_devices_.get());
    return transports;
  }

 private:
  std::array<std::unique_ptr<CollectiveInstance>, 3> own_;  // by level, beginning with WORLD
  std::unique_ptr<CollectiveInstance> own_for_devices_;     // set if for_devices_ is not in own_
  CollectiveInstance* for_devices_ = nullptr;
};

}  // namespace penstock

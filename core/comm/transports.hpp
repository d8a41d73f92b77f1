// What carries the messages of a run: one transport among all its ranks, and where [transport]
// names them others within a host, between hosts, and from device to device.
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
  // The level's own, or that of all ranks.
  CollectiveInstance& at(uint32_t level) const {
    return has_own(level) ? *own_[level - PENSTOCK_LEVEL_WORLD] : world();
  }
  // Of that name, among those of levels; null: none.
  CollectiveInstance* find(std::string_view name) const {
    for (const auto& transport : own_)
      if (transport != nullptr && transport->name() == name) return transport.get();
    return nullptr;
  }
  void set_for_devices(std::unique_ptr<CollectiveInstance> transport) {
    for_devices_ = transport.get();
    own_for_devices_ = std::move(transport);
  }
  // One that carries other messages too: some can be joined only once in a process.
  void share_for_devices(CollectiveInstance& of_level) { for_devices_ = &of_level; }
  CollectiveInstance* for_devices() const { return for_devices_; }  // null: none
  // Each once, that of all ranks first.
  std::vector<CollectiveInstance*> all() const {
    std::vector<CollectiveInstance*> transports;
    for (const auto& transport : own_)
      if (transport != nullptr) transports.push_back(transport.get());
    if (own_for_devices_ != nullptr) transports.push_back(own_for_devices_.get());
    return transports;
  }

 private:
  std::array<std::unique_ptr<CollectiveInstance>, 3> own_;  // by level, from WORLD on
  std::unique_ptr<CollectiveInstance> own_for_devices_;     // where it is none of these
  CollectiveInstance* for_devices_ = nullptr;
};

}  // namespace penstock

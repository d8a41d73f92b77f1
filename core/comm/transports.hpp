// What carries the messages of a run: one transport among all its ranks, and where [transport]
// names them others within a host, between hosts, and from device to device.
#pragma once

#include "core/plugin/instances.hpp"

#include <penstock/collective.h>

#include <array>
#include <memory>
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
  void set_for_devices(std::unique_ptr<CollectiveInstance> transport) {
    for_devices_ = std::move(transport);
  }
  CollectiveInstance* for_devices() const { return for_devices_.get(); }  // null: none
  // Each once, that of all ranks first.
  std::vector<CollectiveInstance*> all() const {
    std::vector<CollectiveInstance*> transports;
    for (const auto& transport : own_)
      if (transport != nullptr) transports.push_back(transport.get());
    if (for_devices_ != nullptr) transports.push_back(for_devices_.get());
    return transports;
  }

 private:
  std::array<std::unique_ptr<CollectiveInstance>, 3> own_;  // by level, from WORLD on
  std::unique_ptr<CollectiveInstance> for_devices_;
};

}  // namespace penstock

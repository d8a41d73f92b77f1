// What carries the messages of a run: one transport among all its ranks, and where [transport]
// names them others within a host and between hosts.
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
  // Each once, that of all ranks first.
  std::vector<CollectiveInstance*> all() const {
    std::vector<CollectiveInstance*> transports;
    for (const auto& transport : own_)
      if (transport != nullptr) transports.push_back(transport.get());
    return transports;
  }

 private:
  std::array<std::unique_ptr<CollectiveInstance>, 3> own_;  // by level, from WORLD on
};

}  // namespace penstock

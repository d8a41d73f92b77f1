// Buckets of one phase that leave least exposed.
#pragma once

#include <planning/scheduler.hpp>

#include <string>

namespace optimal {

struct Planned {
  penstock::planning::Buckets buckets;
  std::string how;  // for people: whether any cut could be better
};

// Of all cuts of the order of readiness into buckets on `route`, with the configured candidates,
// one whose planning::forecast exposes least; of those that expose the same one of few buckets.
// Where there are too many for that, one that no rule of cuts_by_rules() is better than, and that a
// search which looks ever closer found.
Planned least_exposed(const penstock_model& model, uint32_t phase, uint32_t route);

}  // namespace optimal

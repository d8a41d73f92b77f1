// Plans the buckets of one phase with the least exposed time.
#pragma once

#include <planning/scheduler.hpp>

#include <string>

namespace optimal {

struct Planned {
  penstock::planning::Buckets buckets;
  std::string how;  // text for the explanation: whether another cut may be better
};

// Returns the cut of the order of readiness into buckets on `route`, with the configured
// candidates, whose planning::forecast exposes the least time; among equal cuts, a cut with few
// buckets. If there are too many cuts for this, it returns a cut that is at least as good as every
// rule of cuts_by_rules(), found by searches ever closer to the best cut.
Planned least_exposed(const penstock_model& model, uint32_t phase, uint32_t route);

}  // namespace optimal

// Simple rules for what goes together. Their plans are compared with what a search finds: where
// that may not look at all cuts, it is still never behind them.
#pragma once

#include <penstock/scheduler.h>

#include <cstdint>
#include <vector>

namespace penstock::planning {

// Cuts of `gradients`, which are in order of readiness: each alone, two, four, ... and all
// together; equal shares of the payload; and what becomes ready while the message before is on its
// way. There is at least one gradient.
std::vector<std::vector<std::vector<uint64_t>>> cuts_by_rules(
    const penstock_model& model, uint32_t phase, const std::vector<uint64_t>& gradients);

}  // namespace penstock::planning

// Simple rules that form buckets. A search compares its plan with the plans of these rules: even if
// it cannot try all cuts, its result is never worse than theirs.
#pragma once

#include <penstock/scheduler.h>

#include <cstdint>
#include <vector>

namespace penstock::planning {

// Cuts of `gradients`, which are in order of readiness: buckets of one, two, four, ... and all
// gradients; buckets of equal shares of the payload; and buckets of the gradients that become ready
// during the message before. There must be at least one gradient.
std::vector<std::vector<std::vector<uint64_t>>> cuts_by_rules(
    const penstock_model& model, uint32_t phase, const std::vector<uint64_t>& gradients);

}  // namespace penstock::planning

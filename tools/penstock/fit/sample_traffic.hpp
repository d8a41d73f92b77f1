// Predicts without a run the bytes that a scheme moves through the network, for the usual model
// (usual_model.hpp).
#pragma once

#include "core/config/config.hpp"
#include "core/fit/traffic.hpp"
#include "core/plugin/registry.hpp"

namespace penstock {

// Returns the traffic of every stage of the configuration, with `ranks` ranks on hosts of
// `ranks_per_host` ranks each.
Result<std::vector<StageTraffic>> sample_traffic(const Config& config, Registry& registry,
                                                 uint32_t ranks, uint32_t ranks_per_host);

}  // namespace penstock

// What a scheme moves through the network, told without a run, for a model of usual shapes
// (usual_model.hpp).
#pragma once

#include "core/config/config.hpp"
#include "core/fit/traffic.hpp"
#include "core/plugin/registry.hpp"

namespace penstock {

// For every stage of the configuration, among `ranks` ranks on hosts of `ranks_per_host`.
Result<std::vector<StageTraffic>> sample_traffic(const Config& config, Registry& registry,
                                                 uint32_t ranks, uint32_t ranks_per_host);

}  // namespace penstock

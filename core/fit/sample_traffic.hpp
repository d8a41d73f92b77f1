// What a scheme moves through the network, told without a run, for a model of usual shapes.
#pragma once

#include "core/config/config.hpp"
#include "core/fit/traffic.hpp"
#include "core/plugin/registry.hpp"

namespace penstock {

// For every stage of the configuration, among `ranks` ranks on hosts of `ranks_per_host`. The
// model: sixteen matrices of 1024 by 1024, as many kernels of 256 by 256 by 3 by 3, and a bias for
// each of them; 106 MB of float32.
Result<std::vector<StageTraffic>> sample_traffic(const Config& config, Registry& registry,
                                                 uint32_t ranks, uint32_t ranks_per_host);

}  // namespace penstock

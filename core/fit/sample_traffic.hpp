// What a scheme moves through the network, told without a run, for a model of usual shapes.
#pragma once

#include "core/config/config.hpp"
#include "core/fit/traffic.hpp"
#include "core/plugin/registry.hpp"

namespace penstock {

// What is in force from a step on, beside dense all-reduces of the same gradients.
struct SampleTraffic {
  uint64_t from_step = 0;
  PlannedBytes bytes;  // that a rank hands over in a step
  double gradient_bytes = 0;
  double moved = 0;         // that a rank sends in a step, among `ranks` ranks
  double dense_moved = 0;   // what it would send without compression
  uint32_t loses_from = 0;  // the smallest world in which more is moved than that; 0: none
};

// For every stage of the configuration. The model: sixteen matrices of 1024 by 1024, as many
// kernels of 256 by 256 by 3 by 3, and a bias for each of them; 106 MB of float32.
Result<std::vector<SampleTraffic>> sample_traffic(const Config& config, Registry& registry,
                                                  uint32_t ranks);

}  // namespace penstock

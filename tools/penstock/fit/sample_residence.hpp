// Predicts without a run, by the rules of a run (residence.hpp), which gradients of a scheme would
// be device-resident if they lay on a CUDA device.
#pragma once

#include "core/config/config.hpp"
#include "core/plugin/registry.hpp"

#include <string>
#include <vector>

namespace penstock {

// The prediction for one kind of gradient of the usual model: "matrices", "convolutions" or
// "vectors".
struct SampleResidence {
  std::string what;
  std::string why_staged;      // empty: the gradient is device-resident
  bool goes_directly = false;  // its data goes from device to device, without host memory
};

// Predicts for float32 gradients of a frontend that can make the next forward wait.
Result<std::vector<SampleResidence>> sample_residence(const Config& config, Registry& registry);

}  // namespace penstock

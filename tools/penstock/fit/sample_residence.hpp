// Where gradients of a scheme would be worked on if they lay on a CUDA device, told without a run,
// by the same rules (residence.hpp).
#pragma once

#include "core/config/config.hpp"
#include "core/plugin/registry.hpp"

#include <string>
#include <vector>

namespace penstock {

// A kind of gradient of a model of usual shapes: "matrices", "convolutions" or "vectors".
struct SampleResidence {
  std::string what;
  std::string why_staged;      // empty: it is worked on on the device
  bool goes_directly = false;  // and what is sent of it goes from there, where there is a way
};

// Of float32 gradients of a frontend that can let the next forward wait.
Result<std::vector<SampleResidence>> sample_residence(const Config& config, Registry& registry);

}  // namespace penstock

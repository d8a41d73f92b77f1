// Measures the cost of each compressor of a scheme outside the steps. It uses artificial gradients
// and its own instances, states and buffers, so nothing of the set can change.
#pragma once

#include "core/bucket/compiled_plan.hpp"

#include <string>
#include <vector>

namespace penstock {

struct ProbedCall {
  std::string compressor;
  bool on_device = false;
  double elements = 0;
  double encode_us = 0;  // compensate and encode, as in a step
  double decode_us = 0;
  Status status;  // the reason why there are no times
};

// Probes every compressor that the scheme allows for a gradient, with the largest, the smallest and
// a middle gradient of these, up to a size that is quick to try. Each time is the minimum of a few
// tries; a compressor gets about 50 ms in all. Each try is a whole job of a bucket with this one
// gradient, on route `flat`, with `echo` in place of each exchange; the engine thread of `set` runs
// it. Device-resident gradients are probed on their device, as in a step, and the device's own time
// counts. [control]
std::vector<ProbedCall> probe_compressors(const SetContext& set, const Scheme& scheme,
                                          const std::vector<const Gradient*>& gradients,
                                          Registry& registry);

}  // namespace penstock

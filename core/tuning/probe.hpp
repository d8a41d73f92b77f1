// Measures what each compressor of a scheme costs, outside the steps: on made-up gradients, with
// instances, states and buffers of their own, so that nothing of the set can change.
#pragma once

#include "core/bucket/works.hpp"

#include <string>
#include <vector>

namespace penstock {

struct ProbedCall {
  std::string compressor;
  bool on_device = false;
  double elements = 0;
  double encode_us = 0;  // compensate and encode, as in a step
  double decode_us = 0;
  Status status;  // why there are no times
};

// Every compressor that the scheme lets any of the gradients have, with the largest, the smallest
// and a middle one of those gradients, as far as they are no larger than is quick to try. Each time
// is the least of a few, and a compressor gets about 50 ms in all. Each try is a whole job of a
// bucket with this one gradient, on route `flat`, with `echo` in place of each exchange; the engine
// thread of `set` runs it. Residents are worked on on their device, as in a step, and the device's
// own time counts. [control]
std::vector<ProbedCall> probe_compressors(const SetContext& set, const Scheme& scheme,
                                          const std::vector<const Gradient*>& gradients,
                                          Registry& registry);

}  // namespace penstock

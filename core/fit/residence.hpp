// Whether a gradient that lies on a device is worked on there, as its residence, or goes through
// host memory. What there is no way for on a device yet is known here, before the first step.
#pragma once

#include "core/fit/fitting.hpp"

#include <string>

namespace penstock {

// What a set knows beside its fitting.
struct ResidenceSite {
  bool switches = false;             // the scheme changes at some step
  bool nonfinite_is_strict = false;  // void buckets are known before anything is added to a memory
  bool forward_waits = false;        // the next forward may wait for gradients
  bool result_is_sum = false;        // the frontend wants sums, not means
};

// Why it goes through host memory, as half a sentence: `compressor "none" works on the CPU only`.
// Empty: it can be worked on on CUDA devices.
std::string why_staged(const Fitting& fitting, const DeclaredGradient& gradient,
                       const ResidenceSite& site);

}  // namespace penstock

// Whether a gradient that lies on a device is worked on there, as its residence, or goes through
// host memory. This file knows, before the first step, what devices do not support yet.
#pragma once

#include "core/fit/fitting.hpp"

#include <memory>
#include <span>
#include <string>

namespace penstock {

// What a set knows beside its fitting.
struct ResidenceSite {
  bool forward_waits = false;  // the frontend can wait for gradients in the next forward
  bool result_is_sum = false;  // the frontend wants sums, not means
  bool has_all_ranks = true;   // of the run; gradients of other sets go through host memory
  // By which something goes from device to device, between all ranks or those of each host; empty:
  // the run has none.
  std::string device_transport = "";
  uint32_t connects = PENSTOCK_LEVEL_WORLD;
  uint64_t sums = 0;  // the dtypes of what it adds up on devices
};

// A scheme from one switch to the next.
struct SchemeStage {
  uint64_t first_step = 0;
  std::shared_ptr<const Fitting> fitting;
};

// Why it goes through host memory, as half a sentence: `compressor "none" was built for the CPU
// only`. Empty: it can be worked on on CUDA devices in all stages of the configuration, and its
// memory stays in all of them.
std::string why_staged(std::span<const SchemeStage> stages, const DeclaredGradient& gradient,
                       const ResidenceSite& site);

}  // namespace penstock

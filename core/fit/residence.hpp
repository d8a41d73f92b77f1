// Decides whether a gradient that lies on a device is device-resident (compressed there) or staged
// through host memory. These rules list, before the first step, what devices do not support yet.
#pragma once

#include "core/fit/bound_scheme.hpp"

#include <memory>
#include <span>
#include <string>

namespace penstock {

// The facts about a set that its bound scheme does not contain.
struct ResidenceSite {
  bool forward_waits = false;  // the frontend can wait for gradients in the next forward
  bool result_is_sum = false;  // the frontend wants sums, not means
  bool has_all_ranks = true;   // of the run; the gradients of a smaller set are staged
  // The transport between devices, of all ranks or of the ranks of each host (`connects`); empty:
  // the run has none.
  std::string device_transport = "";
  uint32_t connects = PENSTOCK_LEVEL_WORLD;
  uint64_t sums = 0;  // the dtypes that it adds up on devices
};

// A scheme that is in force from `first_step` until the next stage.
struct SchemeStage {
  uint64_t first_step = 0;
  std::shared_ptr<const BoundScheme> bound_scheme;
};

// The reason why the gradient is staged, as half a sentence: `compressor "none" was built for the
// CPU only`. Empty: the gradient can be compressed on CUDA devices in all stages of the
// configuration, and its memory stays through all stages.
std::string why_staged(std::span<const SchemeStage> stages, const DeclaredGradient& gradient,
                       const ResidenceSite& site);

}  // namespace penstock

// The cut that leaves least exposed on route split.
#pragma once

#include "runs.hpp"

namespace optimal {

// A cut that exposes less than `target` and than all others, where reduce-scatters follow each
// other in backward, which ends at `backward_end`, and all-gathers in the next forward, the last
// bucket first. Proven unless so many ways to cut were open at once that some were dropped; up to
// 12 parts none is.
Cut least_split(const Runs& runs, double backward_end, double target);

}  // namespace optimal

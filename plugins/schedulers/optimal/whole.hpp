// The cut whose last bucket is decoded soonest, for routes that take a bucket whole.
#pragma once

#include "runs.hpp"

namespace optimal {

// A cut that ends before `target` and sooner than all others, on the machine of
// planning::forecast: one engine that decodes before it encodes, one link. Proven unless so many
// ways to cut were open at once that some were dropped; up to 12 parts none is.
Cut soonest_cut(const Runs& runs, double target);

}  // namespace optimal

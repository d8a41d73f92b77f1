// The cut whose last bucket is decoded soonest, for routes that take a bucket whole.
#pragma once

#include "machine.hpp"
#include "runs.hpp"

namespace optimal {

// A cut that ends before `target` and sooner than all others, for a machine that has encoded the
// buckets of `head`. Proven unless so many ways to cut were open at once that some were dropped; up
// to 12 parts none is.
Cut soonest_cut(const Runs& runs, const Head& head, double target);

}  // namespace optimal

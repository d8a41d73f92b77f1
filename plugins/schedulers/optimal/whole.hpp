// The cut whose last bucket is decoded soonest, for routes that take a bucket whole.
#pragma once

#include "machine.hpp"
#include "runs.hpp"

namespace optimal {

// A cut that ends before `target` and sooner than all others, for a machine that has encoded the
// buckets of `head`. Proven unless more than `n_ways` ways to cut what is before a place were open
// at once, for then some are dropped.
Cut soonest_cut(const Runs& runs, const Head& head, double target, uint32_t n_ways);

}  // namespace optimal

// The cut whose last bucket is decoded soonest, for routes that carry a bucket whole.
#pragma once

#include "machine.hpp"
#include "runs.hpp"

namespace optimal {

// Searches for the cut that ends before `target` and before all other cuts, for a machine on which
// the buckets of `head` are encoded. Not proven if more than `n_ways` ways to cut the gradients
// before a place were open, because then some were dropped.
Cut soonest_cut(const Runs& runs, const Head& head, double target, uint32_t n_ways);

}  // namespace optimal

// The cut with the least exposed time on route `split`.
#pragma once

#include "runs.hpp"

#include <limits>

namespace optimal {

// The state of the machine after the first buckets of a cut, the head.
struct SplitHead {
  static constexpr double kNothing = -std::numeric_limits<double>::infinity();
  double engine = 0;  // when the engine is free
  double link = 0;    // when the link is free
  // How long the head makes the next forward wait, if the link (the engine) comes to its buckets at
  // the start of forward. If it comes later, forward waits so much longer.
  double from_link = kNothing;
  double from_engine = kNothing;

  // Adds the next bucket, which comes before the buckets of the head in forward.
  void add(const Run& run);
};

// Searches for the cut that exposes less than `target` and less than all other cuts.
// Reduce-scatters follow each other in backward, which ends at `backward_end`; all-gathers follow
// each other in the next forward, the last bucket first. Not proven if more than `n_ways` ways to
// cut the gradients before a place were open, because then some were dropped.
Cut least_split(const Runs& runs, const SplitHead& head, double backward_end, double target,
                uint32_t n_ways);

}  // namespace optimal

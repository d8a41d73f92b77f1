// The cut that leaves least exposed on route split.
#pragma once

#include "runs.hpp"

#include <limits>

namespace optimal {

// What the buckets of a head leave behind.
struct SplitHead {
  static constexpr double kNothing = -std::numeric_limits<double>::infinity();
  double engine = 0;  // free from here on
  double link = 0;    // likewise
  // How long they make the next forward wait, if link and engine come to them at its start. They do
  // later: by as much more.
  double from_link = kNothing;
  double from_engine = kNothing;

  // The next bucket, which in forward comes before those that there are.
  void add(const Run& run);
};

// A cut that exposes less than `target` and than all others, where reduce-scatters follow each
// other in backward, which ends at `backward_end`, and all-gathers in the next forward, the last
// bucket first. Proven unless more than `n_ways` ways to cut what is before a place were open at
// once, for then some are dropped.
Cut least_split(const Runs& runs, const SplitHead& head, double backward_end, double target,
                uint32_t n_ways);

}  // namespace optimal

// OMGS-SGD with the constants that its authors measured, for any number of ranks.
#pragma once

#include <penstock/scheduler.h>

#include <cstdint>
#include <planning/published_links.hpp>
#include <vector>

namespace omgs {

struct PublishedConstants {
  double backward_s = 0;   // whole model; each gradient takes its share by elements
  double selection_s = 0;  // top-k of x entries takes selection_s * x * log2(x)
  double density = 1;      // share of entries sent
  bool forked = false;     // the fork's two tables by size; false: the release's one table
  double startup_s = -1;   // replaces the table's value; negative: from the table
  double s_per_byte = -1;
};

// The line for an all-gather in which `ranks` ranks receive `bytes` in all, on 1 Gb/s Ethernet.
// Only the line of the fork depends on `bytes`: the fork has a table below 1 MiB and a table from 1
// MiB on.
penstock::planning::PublishedLink line_for(const PublishedConstants& constants, uint32_t ranks,
                                           double bytes);

// Returns the buckets of one phase, in order of priority, without measured times. Always ends.
std::vector<std::vector<uint64_t>> published_buckets(const penstock_model& model, uint32_t phase,
                                                     const PublishedConstants& constants);

}  // namespace omgs

// OMGS-SGD with the constants that its authors measured, for any number of ranks.
#pragma once

#include <penstock/scheduler.h>

#include <cstdint>
#include <planning/published_links.hpp>
#include <vector>

namespace omgs {

struct PublishedConstants {
  double backward_s = 0;   // of the whole model; each gradient takes its share by elements
  double selection_s = 0;  // top-k of x entries takes selection_s * x * log2(x)
  double density = 1;      // share of entries sent
  bool forked = false;     // the fork's two tables by size, otherwise the release's one
  double startup_s = -1;   // in place of the table's; negative: from the table
  double s_per_byte = -1;
};

// The line of an all-gather in which `ranks` ranks receive `bytes` in all, on 1 Gb/s Ethernet. Only
// the fork's depends on `bytes`: it has a table below 1 MiB and one from there on.
penstock::planning::PublishedLink line_for(const PublishedConstants& constants, uint32_t ranks,
                                           double bytes);

// Buckets of one phase, in order of priority, from nothing measured. Always ends.
std::vector<std::vector<uint64_t>> published_buckets(const penstock_model& model, uint32_t phase,
                                                     const PublishedConstants& constants);

}  // namespace omgs

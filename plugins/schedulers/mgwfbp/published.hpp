// MG-WFBP with the lines (start-up and time per byte) that its authors measured on their networks,
// for any number of ranks.
#pragma once

#include <penstock/scheduler.h>

#include <cstdint>
#include <planning/published_links.hpp>
#include <string_view>
#include <vector>

namespace mgwfbp {

struct PublishedConstants {
  double backward_s = 0;    // whole model; each gradient takes its share by elements
  bool infiniband = false;  // 56 Gb/s InfiniBand, otherwise 10 Gb/s Ethernet
  double startup_s = -1;    // replaces the table's value; negative: from the table
  double s_per_byte = -1;
};

// The line for an all-reduce over `ranks` ranks.
penstock::planning::PublishedLink line_for(const PublishedConstants& constants, uint32_t ranks);

// Returns the buckets of one phase, in order of priority, without measured times. Always ends.
std::vector<std::vector<uint64_t>> published_buckets(const penstock_model& model, uint32_t phase,
                                                     const PublishedConstants& constants);

}  // namespace mgwfbp

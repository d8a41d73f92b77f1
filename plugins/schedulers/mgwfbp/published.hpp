// MG-WFBP with the lines that its authors measured on their networks, for any number of ranks.
#pragma once

#include <penstock/scheduler.h>

#include <cstdint>
#include <planning/published_links.hpp>
#include <string_view>
#include <vector>

namespace mgwfbp {

struct PublishedConstants {
  double backward_s = 0;    // of the whole model; each gradient takes its share by elements
  bool infiniband = false;  // 56 Gb/s InfiniBand, otherwise 10 Gb/s Ethernet
  double startup_s = -1;    // in place of the table's; negative: from the table
  double s_per_byte = -1;
};

// The line of an all-reduce over `ranks` ranks.
penstock::planning::PublishedLink line_for(const PublishedConstants& constants, uint32_t ranks);

// Buckets of one phase, in order of priority, from nothing measured. Always ends.
std::vector<std::vector<uint64_t>> published_buckets(const penstock_model& model, uint32_t phase,
                                                     const PublishedConstants& constants);

}  // namespace mgwfbp

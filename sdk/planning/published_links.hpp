// Lines that authors measured on their own network, by number of ranks. A planner in published mode
// uses them instead of measured links.
#pragma once

#include <cstdint>
#include <span>

namespace penstock::planning {

// A collective of b bytes over `ranks` ranks takes startup_s + s_per_byte * b seconds.
struct PublishedLink {
  double ranks = 0;
  double startup_s = 0;
  double s_per_byte = 0;
};

// The line for `ranks`, from at least one row in rising order of ranks: linear between two rows,
// the nearest row beyond the ends, so that every number of ranks has a line.
inline PublishedLink link_for(std::span<const PublishedLink> rows, uint32_t ranks) {
  const double wanted = ranks;
  if (wanted <= rows.front().ranks) return rows.front();
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const PublishedLink& low = rows[i - 1];
    const PublishedLink& high = rows[i];
    if (wanted > high.ranks) continue;
    if (wanted == high.ranks) return high;  // as printed, without rounding
    const double share = (wanted - low.ranks) / (high.ranks - low.ranks);
    return {wanted, low.startup_s + share * (high.startup_s - low.startup_s),
            low.s_per_byte + share * (high.s_per_byte - low.s_per_byte)};
  }
  return rows.back();
}

}  // namespace penstock::planning

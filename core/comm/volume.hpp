// The bytes that a rank sends to other ranks for a message. They differ from the bytes it hands
// over: for a gather of B bytes among P ranks it sends B (P - 1) bytes, for an all-reduce 2 B (P -
// 1) / P.
#pragma once

#include <penstock/collective.h>

#include <cstdint>
#include <vector>

namespace penstock {

// The distribution of a group's ranks over hosts. If hosts have unequal numbers of ranks, every
// rank counts as a host of its own; the sum over both levels, which is used here, does not change.
struct Spread {
  uint32_t hosts = 1;
  uint32_t ranks_per_host = 1;
  uint32_t size() const { return hosts * ranks_per_host; }
};
Spread spread_of(const std::vector<uint32_t>& hosts);

// Bytes that a rank of the group sends for `bytes` in `pattern`, within and between hosts together:
// the value of the collective's `volume`, or else the formula of a ring or of direct sends. `table`
// may be null. [any]
double moved_bytes(const penstock_collective* table, void* instance, const Spread& spread,
                   uint32_t pattern, uint64_t bytes);

}  // namespace penstock

// How many bytes a rank sends to other ranks for a message, which is not what it hands over: a
// gather of B bytes among P ranks sends them P - 1 times, an all-reduce 2 (P - 1) / P of them.
#pragma once

#include <penstock/collective.h>

#include <cstdint>
#include <vector>

namespace penstock {

// How the ranks of a group lie on hosts. Unequal numbers count as one rank per host: the sum over
// both levels, which is what is asked for here, is the same.
struct Spread {
  uint32_t hosts = 1;
  uint32_t ranks_per_host = 1;
  uint32_t size() const { return hosts * ranks_per_host; }
};
Spread spread_of(const std::vector<uint32_t>& hosts);

// Bytes that a rank of the group sends for `bytes` in `pattern`, within and between hosts together:
// what the collective's `volume` says, else the formula of a ring or of straight sends. `table` may
// be null. [any]
double moved_bytes(const penstock_collective* table, void* instance, const Spread& spread,
                   uint32_t pattern, uint64_t bytes);

}  // namespace penstock

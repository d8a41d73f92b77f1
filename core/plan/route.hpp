// A route is a list of legs: in each, a group of ranks exchanges something, round by round.
// docs/routes.md draws who sends what to whom.
#pragma once

#include <planning/plan.hpp>

#include <penstock/collective.h>
#include <penstock/scheduler.h>

#include <cstdint>
#include <span>

namespace penstock {

struct LegKind {
  uint32_t level;    // PENSTOCK_LEVEL_*: which group
  uint32_t pattern;  // how payloads that are summed meet, or what is gathered goes to its owners
  bool encodes;      // its payloads are made from work: memory and compressor begin here
  bool decodes;      // what arrives is the result of what was encoded
  bool is_dense() const { return !encodes && !decodes; }
};

// `flat`: everything over all ranks at once. `split`: sums are reduced and scattered in backward,
// and gathered in the next forward, each half at about half the cost. `hierarchical`: the ranks of
// a host add their gradients and each owns a part of the sum, which it exchanges coded with the
// owners of the same part on other hosts; what comes out goes to the whole host. `shard`: each rank
// sends each owner its part, coded; the owner adds, encodes the sum and sends it to all.
inline std::span<const LegKind> legs_of(uint32_t route) {
  static constexpr LegKind kFlat[] = {{PENSTOCK_LEVEL_WORLD, PENSTOCK_ALL_REDUCE, true, true}};
  static constexpr LegKind kSplit[] = {{PENSTOCK_LEVEL_WORLD, PENSTOCK_REDUCE_SCATTER, true, false},
                                       {PENSTOCK_LEVEL_WORLD, PENSTOCK_ALL_GATHER, false, true}};
  static constexpr LegKind kHierarchical[] = {
      {PENSTOCK_LEVEL_LOCAL, PENSTOCK_REDUCE_SCATTER, false, false},
      {PENSTOCK_LEVEL_CROSS, PENSTOCK_ALL_REDUCE, true, true},
      {PENSTOCK_LEVEL_LOCAL, PENSTOCK_ALL_GATHER, false, false}};
  static constexpr LegKind kShard[] = {{PENSTOCK_LEVEL_WORLD, PENSTOCK_ALL_TO_ALL, true, true},
                                       {PENSTOCK_LEVEL_WORLD, PENSTOCK_ALL_GATHER, true, true}};
  switch (route) {
    case PENSTOCK_ROUTE_FLAT:
      return kFlat;
    case PENSTOCK_ROUTE_SPLIT:
      return kSplit;
    case PENSTOCK_ROUTE_HIERARCHICAL:
      return kHierarchical;
    case PENSTOCK_ROUTE_SHARD:
      return kShard;
    default:
      return {};
  }
}

// Whether each element has an owner, who is not every rank.
inline bool has_owners(uint32_t route) {
  return route == PENSTOCK_ROUTE_HIERARCHICAL || route == PENSTOCK_ROUTE_SHARD;
}

}  // namespace penstock

// A route is a list of legs: in each, a group of ranks exchanges something, round by round.
#pragma once

#include <penstock/collective.h>
#include <penstock/scheduler.h>

#include <cstdint>
#include <span>

namespace penstock {

struct LegKind {
  uint32_t level;  // PENSTOCK_LEVEL_*: which group
  uint32_t sums;   // PENSTOCK_ALL_REDUCE, ...: how payloads that are summed meet
  bool encodes;    // its payloads are made from work
  bool decodes;    // what arrives is the result
  bool waits_for_forward;
};

// `flat`: everything over all ranks at once. `split`: sums are reduced and scattered in backward,
// and gathered in the next forward, each half at about half the cost. Empty for a route that this
// version does not run.
inline std::span<const LegKind> legs_of(uint32_t route) {
  static constexpr LegKind kFlat[] = {
      {PENSTOCK_LEVEL_WORLD, PENSTOCK_ALL_REDUCE, true, true, false}};
  static constexpr LegKind kSplit[] = {
      {PENSTOCK_LEVEL_WORLD, PENSTOCK_REDUCE_SCATTER, true, false, false},
      {PENSTOCK_LEVEL_WORLD, PENSTOCK_ALL_GATHER, false, true, true}};
  switch (route) {
    case PENSTOCK_ROUTE_FLAT:
      return kFlat;
    case PENSTOCK_ROUTE_SPLIT:
      return kSplit;
    default:
      return {};
  }
}

}  // namespace penstock

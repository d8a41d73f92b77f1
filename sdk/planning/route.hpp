// A route is a list of legs: in each leg, a group of ranks exchanges payloads, round by round.
// docs/routes.md draws the messages between ranks. All other properties of a route follow from its
// legs.
#pragma once

#include <penstock/collective.h>
#include <penstock/scheduler.h>

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace penstock::planning {

struct LegKind {
  uint32_t level;    // PENSTOCK_LEVEL_*: which group
  uint32_t pattern;  // how payloads are exchanged if they are summed, or go to owners
  bool encodes;      // its payloads are made from work: memory and compressor begin here
  bool decodes;      // the received payloads are decoded to the result
  constexpr bool is_dense() const { return !encodes && !decodes; }
};

namespace legs {
// Everything over all ranks at once.
inline constexpr LegKind kFlat[] = {{PENSTOCK_LEVEL_WORLD, PENSTOCK_ALL_REDUCE, true, true}};
// Sums are reduced and scattered in backward, and gathered in the next forward, each half at about
// half the cost.
inline constexpr LegKind kSplit[] = {{PENSTOCK_LEVEL_WORLD, PENSTOCK_REDUCE_SCATTER, true, false},
                                     {PENSTOCK_LEVEL_WORLD, PENSTOCK_ALL_GATHER, false, true}};
// The ranks of a host add their gradients and each owns a part of the sum, which it exchanges coded
// with the owners of this part on other hosts; the result goes to all ranks of the host.
inline constexpr LegKind kHierarchical[] = {
    {PENSTOCK_LEVEL_LOCAL, PENSTOCK_REDUCE_SCATTER, false, false},
    {PENSTOCK_LEVEL_CROSS, PENSTOCK_ALL_REDUCE, true, true},
    {PENSTOCK_LEVEL_LOCAL, PENSTOCK_ALL_GATHER, false, false}};
// Each rank sends each owner its part, coded; the owner adds, encodes the sum and sends it to all.
inline constexpr LegKind kShard[] = {{PENSTOCK_LEVEL_WORLD, PENSTOCK_ALL_TO_ALL, true, true},
                                     {PENSTOCK_LEVEL_WORLD, PENSTOCK_ALL_GATHER, true, true}};
}  // namespace legs

struct Route {
  uint32_t number;        // PENSTOCK_ROUTE_*
  std::string_view name;  // in TOML
  std::span<const LegKind> legs;
};
inline constexpr std::array<Route, 4> kRoutes = {
    Route{PENSTOCK_ROUTE_FLAT, "flat", legs::kFlat},
    Route{PENSTOCK_ROUTE_SPLIT, "split", legs::kSplit},
    Route{PENSTOCK_ROUTE_HIERARCHICAL, "hierarchical", legs::kHierarchical},
    Route{PENSTOCK_ROUTE_SHARD, "shard", legs::kShard}};

// The legs of a route; empty for a number that is not a route.
constexpr std::span<const LegKind> legs_of(uint32_t route) {
  for (const Route& each : kRoutes)
    if (each.number == route) return each.legs;
  return {};
}

// The ranks of a host add gradients before anything is encoded, and each owns a part of the sum.
constexpr bool adds_in_hosts(uint32_t route) {
  const auto legs = legs_of(route);
  return !legs.empty() && legs.front().is_dense();
}
// Encoded payloads go to owners, which add them and encode the sums.
constexpr bool encodes_for_owners(uint32_t route) {
  const auto legs = legs_of(route);
  return !legs.empty() && legs.front().encodes && legs.front().pattern == PENSTOCK_ALL_TO_ALL;
}
// One sum in two legs; the second leg waits for the next forward.
constexpr bool halves_sums(uint32_t route) {
  const auto legs = legs_of(route);
  return !legs.empty() && legs.front().encodes && !legs.front().decodes;
}
// Whether each element has one owner in a group of ranks; and the level of that group.
constexpr bool has_owners(uint32_t route) {
  return adds_in_hosts(route) || encodes_for_owners(route);
}
constexpr uint32_t level_of_owners(uint32_t route) {
  return adds_in_hosts(route) ? PENSTOCK_LEVEL_LOCAL : PENSTOCK_LEVEL_WORLD;
}

}  // namespace penstock::planning

// What a bucket takes on a route that goes leg by leg over several levels, by the measured lines of
// those. Elsewhere in this room a route's legs count as one message among all ranks.
#pragma once

#include "planning/cost.hpp"
#include "planning/forecast.hpp"
#include "planning/model.hpp"

namespace penstock::planning {

// Bit per route that a gradient can take with a candidate: what the host says, or where it is older
// than ABI 0.5 the route of the scheme.
uint64_t routes_of(const penstock_model& model, const penstock_candidate& candidate);

// The exchange of a bucket in a phase on its own route, FLAT, HIERARCHICAL or SHARD, and the share
// of coding that a rank has there. Lines of coding must be those of route flat. All hosts count as
// alike, and an all-to-all as a reduce-scatter of as many bytes: both move a part to every rank.
ExchangeTimes exchange_on_route(const penstock_model& model, const Bucket& bucket);

}  // namespace penstock::planning

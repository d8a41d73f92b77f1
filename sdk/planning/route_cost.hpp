// The time of a bucket on a route whose legs use several levels, by the measured lines of these
// levels. The other functions of this folder count a route as one message among all ranks.
#pragma once

#include "planning/cost.hpp"
#include "planning/forecast.hpp"
#include "planning/model.hpp"

namespace penstock::planning {

// A bit per route that a gradient can take with a candidate: from the host, or for a host before
// ABI 0.5 the route of the scheme.
uint64_t routes_of(const penstock_model& model, const penstock_candidate& candidate);

// The exchange of a bucket in a phase on its own route, FLAT, HIERARCHICAL or SHARD, and one rank's
// share of the coding there. The lines of the compressors must be measured on route flat. All hosts
// count as equal, and an all-to-all counts as a reduce-scatter of as many bytes: both move a part
// to every rank.
ExchangeTimes exchange_on_route(const penstock_model& model, const Bucket& bucket);

}  // namespace penstock::planning

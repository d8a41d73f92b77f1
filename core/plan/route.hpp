// The properties of routes that the core needs.
#pragma once

#include <planning/route.hpp>

namespace penstock {

using planning::adds_in_hosts;
using planning::encodes_for_owners;
using planning::halves_sums;
using planning::has_owners;
using planning::kRoutes;
using planning::LegKind;
using planning::legs_of;
using planning::level_of_owners;

}  // namespace penstock

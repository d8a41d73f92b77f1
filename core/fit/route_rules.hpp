#pragma once

#include "core/fit/rules.hpp"

namespace penstock {

// Whether gradients with the compressor and memories of `group` can take a route. If not,
// FAILED_PRECONDITION says why, and which setting works. Pure.
Status check_route_of(uint32_t route, const FitGroup& group);

// Checks the rules of route shard that concern all groups, and refuses an owner's memory on other
// routes.
Status check_shard_as_a_whole(const FitInput& input, FitAdvice& advice);

// `compressor "NAME" (for layer1.weight and others)`.
std::string named_for(const FitGroup& group, std::string_view kind, const std::string& name);

}  // namespace penstock

#pragma once

#include "core/fit/rules.hpp"

namespace penstock {

// Whether what is compressed and kept so can take a route: FAILED_PRECONDITION says why not, and
// what could. Pure.
Status check_route_of(uint32_t route, const FitGroup& group);

// Route shard as a whole, and an owner's memory without it.
Status check_shard_as_a_whole(const FitInput& input, FitAdvice& advice);

// `compressor "NAME" (for layer1.weight and others)`.
std::string named_for(const FitGroup& group, std::string_view kind, const std::string& name);

}  // namespace penstock

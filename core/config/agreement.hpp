#pragma once

#include "core/config/config.hpp"

#include <functional>

namespace penstock {

// Returns sorted lines that describe an instance's plugin and its resolved options, without
// RANK_LOCAL options.
using DescribeInstance = std::function<Result<std::vector<std::string>>(const InstanceConfig&)>;

// Canonical text of all facts that must be equal on all ranks, one fact per line, sorted within
// each stage, so that the first differing line can be shown to users. `describe` stands for the
// plugins (core/fit/resolve.hpp gives one); its errors are passed on.
Result<std::string> agreement_text(const Config& config, const DescribeInstance& describe);

// The first line in which two agreement texts differ: "here X, there Y"; empty when they are equal.
std::string first_difference(std::string_view here, std::string_view there);

}  // namespace penstock

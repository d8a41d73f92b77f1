// The code paths that the kernels of a run take: one path per kernel family, equal on every rank.
//
// Rank 0 measures which path is fastest on its processor (kernels/fastest_path.hpp); each rank
// reports the paths that it can run. All ranks compute equal results from these texts, and plugins
// read them through the host table.
#pragma once

#include "core/base/status.hpp"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

// Family -> name of the path. The family "" stands for every family without an entry.
using CodePaths = std::map<std::string, std::string, std::less<>>;

// The text that this rank sends to the others. `measures`: includes the fastest path of each family
// on this rank.
std::string code_path_offer(bool measures);

// The agreed paths. `offers`: the texts of all ranks, first the text of rank 0, which has measured
// if `wanted` is "auto". If some rank cannot run a path, the widest narrower path is taken that all
// ranks can run. FAILED_PRECONDITION, naming rank and path, if a rank cannot run the `wanted` path.
Result<CodePaths> choose_code_paths(const std::vector<std::string>& offers,
                                    std::string_view wanted);

}  // namespace penstock

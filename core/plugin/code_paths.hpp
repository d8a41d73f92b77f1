// Which code path the kernels of a run take: one per family, the same on every rank.
//
// Rank 0 measures which is fastest on its processor (kernels/fastest_path.hpp); each rank tells
// which paths it can run. All ranks draw the same conclusion from these texts, and plugins learn of
// it through the host table.
#pragma once

#include "core/base/status.hpp"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

// Family -> name of the path. The family "" stands for all that are not named.
using CodePaths = std::map<std::string, std::string, std::less<>>;

// What this rank says to the others. `measures`: with the fastest path of each family here.
std::string code_path_offer(bool measures);

// The conclusion. `offers`: of all ranks; the first is rank 0's, who has measured where `wanted` is
// "auto". A path that some rank cannot run gives way to the widest narrower one that all can.
// FAILED_PRECONDITION where a path is `wanted` that a rank cannot run, naming both.
Result<CodePaths> choose_code_paths(const std::vector<std::string>& offers,
                                    std::string_view wanted);

}  // namespace penstock

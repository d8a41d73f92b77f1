// The code path that is fastest on this processor, by measuring: the widest registers are not
// always, for a wide path may lower the clock or split its loads.
#pragma once

#include <kernels/code_path.hpp>

#include <span>
#include <string_view>

namespace penstock::kernels {

// Families that are measured. The last one, "", stands for every kernel that belongs to no other.
std::span<const std::string_view> code_path_families() noexcept;

// The fastest path of a family here; a family that is not listed is taken for "". A wider path has
// to win clearly. Measured on first use in at most a few milliseconds, once per process; later
// calls are free. [any]
CodePath fastest_code_path(std::string_view family);

}  // namespace penstock::kernels

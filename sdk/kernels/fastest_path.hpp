// The code path that is fastest on this processor, found by measuring. The widest registers are not
// always the fastest, because a wide path may lower the clock or split its loads.
#pragma once

#include <kernels/code_path.hpp>

#include <span>
#include <string_view>

namespace penstock::kernels {

// The families of kernels that are measured. The last family, "", stands for every kernel that
// belongs to no other family.
std::span<const std::string_view> code_path_families() noexcept;

// The fastest path of a family on this processor; a family that is not listed counts as "". A wider
// path has to win clearly. The first call measures, once per process, in at most a few
// milliseconds; later calls are free. [any]
CodePath fastest_code_path(std::string_view family);

}  // namespace penstock::kernels

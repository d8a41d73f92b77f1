// Measures the time of methods on this machine: the runtime runs steps of one rank and of two.
#pragma once

#include "tools/penstock/plan/costs.hpp"
#include "tools/penstock/plan/schemes.hpp"

#include <vector>

namespace penstock::command {

// Measures every pair of compressor and memory that a scheme may use, with the scheme's options:
// the least time of a few steps on gradients of 65536 and of about a million elements, and the line
// through both times. Takes some tenths of a second for each pair. Errors come from the runtime and
// name the method.
Result<CostTable> measure_costs(const std::vector<SchemeFile>& schemes);

}  // namespace penstock::command

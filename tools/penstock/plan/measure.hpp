// What methods take on this machine: steps of one rank and of two, by the runtime itself.
#pragma once

#include "tools/penstock/plan/costs.hpp"
#include "tools/penstock/plan/schemes.hpp"

#include <vector>

namespace penstock::command {

// Of every pair of compressor and memory that a scheme may use, with the scheme's options: the
// least of a few steps on gradients of 65536 and of a million elements, and the line through both.
// Takes some tenths of a second for each. Errors are the runtime's and name the method.
Result<CostTable> measure_costs(const std::vector<SchemeFile>& schemes);

}  // namespace penstock::command

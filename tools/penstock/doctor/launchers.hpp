// The part of penstock doctor about launchers: each launcher starts two ranks, as in the README.
#pragma once

#include "tools/penstock/doctor/line.hpp"

#include <vector>

namespace penstock::command {

// Returns a line for each launcher. `python`: the Python that `penstock run -- python3` starts; it
// has torch.
std::vector<Line> launcher_lines(const std::string& python);

}  // namespace penstock::command

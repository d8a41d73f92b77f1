// The part of penstock doctor on launchers: two ranks are started by each, as in the README.
#pragma once

#include "tools/penstock/doctor/line.hpp"

#include <vector>

namespace penstock::command {

// One line for each launcher. `python`: the one that `penstock run -- python3` starts, with torch.
std::vector<Line> launcher_lines(const std::string& python);

}  // namespace penstock::command

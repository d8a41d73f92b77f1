// What penstock doctor says of devices: which the runtime finds, and what of a scheme could run
// there.
#pragma once

#include "tools/penstock/doctor/line.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace penstock::command {

// A line for each device that the runtime finds, with `more.device`; or one that says why there is
// none. `table`: where the runtime looks for the functions of its devices.
std::vector<Line> device_lines(const std::filesystem::path& table);

// What would run on a device of the scheme in `file` (empty: that of a run which is given none),
// and what goes through host memory because some plugin was built for the CPU only, as the plugins'
// traits say.
Line scheme_on_device(const std::string& file, const std::vector<std::string>& plugin_path);

}  // namespace penstock::command

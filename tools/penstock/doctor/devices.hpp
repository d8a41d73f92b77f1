// The part of penstock doctor about devices: the devices that the runtime finds, and the parts of a
// scheme that could run on a device.
#pragma once

#include "tools/penstock/doctor/line.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace penstock::command {

// Returns a line for each device that the runtime finds, with `more.device`, or a line with the
// reason why there is no device. `table`: the file of device functions that the runtime loads.
std::vector<Line> device_lines(const std::filesystem::path& table);

// Reports, from the plugins' traits, which gradients would be compressed on a device under the
// scheme in `file`, and which go through host memory because some plugin runs on the CPU only. An
// empty `file` means the default configuration of a run.
Line scheme_on_device(const std::string& file, const std::vector<std::string>& plugin_path);

}  // namespace penstock::command

// The directory of the library or program that contains this code: plugins and schemes are found
// from there.
#pragma once

#include <filesystem>

namespace penstock {

// [any] Absolute, with links followed; empty if the system does not report it.
std::filesystem::path own_directory();

}  // namespace penstock

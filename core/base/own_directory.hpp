// Where the library or program that holds this code lies: plugins and schemes are found from there.
#pragma once

#include <filesystem>

namespace penstock {

// [any] Absolute, links followed; empty if the system does not tell.
std::filesystem::path own_directory();

}  // namespace penstock

// The variables of a process.
#pragma once

#include <functional>

namespace penstock {

// std::getenv, or a test's function. Returns null for a variable that is not set.
using GetEnvironment = std::function<const char*(const char*)>;
GetEnvironment process_environment();

}  // namespace penstock

// Records the profile of a model from a job that trains it.
#pragma once

#include "core/base/status.hpp"

#include <string>
#include <vector>

namespace penstock::command {

// Runs `command`, which writes its profile to `file`, and waits for its end. The output of the
// command goes to stderr. INVALID_ARGUMENT without a command. FAILED_PRECONDITION if the command
// cannot be started, fails, or leaves no profile, as when rank 0 steps no set.
Status record_profile(const std::string& file, std::vector<std::string> command);

}  // namespace penstock::command

// The profile of a model, taken from a job that trains it.
#pragma once

#include "core/base/status.hpp"

#include <string>
#include <vector>

namespace penstock::command {

// Runs `command`, its output on stderr, with the profile asked for in `file`, and waits for its
// end. INVALID_ARGUMENT without a command; FAILED_PRECONDITION where it cannot be started, fails,
// or leaves no profile: no set of it was stepped on rank 0.
Status record_profile(const std::string& file, std::vector<std::string> command);

}  // namespace penstock::command

#pragma once

#include "core/fit/rules.hpp"

namespace penstock {

// Whether a collective can carry what lies in host memory, and whether one can be transport.device,
// as it says before it has joined or then: FAILED_PRECONDITION says why not, and where it belongs.
// Pure.
Status check_reads_host_memory(const CollectiveFacts& collective);
Status check_device_transport(const CollectiveFacts& collective, bool has_joined,
                              const Offers* offers = nullptr);
Status check_between_devices(const FitInput& input, FitAdvice& advice);

}  // namespace penstock

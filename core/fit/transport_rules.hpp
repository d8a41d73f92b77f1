#pragma once

#include "core/fit/rules.hpp"

namespace penstock {

// These functions are pure. FAILED_PRECONDITION says why a collective cannot be used, and which key
// it belongs to.

// Whether a collective can carry data in host memory.
Status check_reads_host_memory(const CollectiveFacts& collective);
// Whether a collective can be transport.device. `has_joined`: its facts were read after it joined.
Status check_device_transport(const CollectiveFacts& collective, bool has_joined,
                              const Offers* offers = nullptr);
// Whether transport.device fits the rest of a configuration.
Status check_between_devices(const FitInput& input, FitAdvice& advice);

}  // namespace penstock

// MG-WFBP on times measured in the running job.
#pragma once

#include <penstock/scheduler.h>

#include <cstdint>
#include <vector>

namespace mgwfbp {

// Buckets of one phase for a model with measured times, in order of priority: backward times are
// the differences between ready times, a message takes planning::exchange_us, and a start-up is
// planning::startup_us. Always ends, whatever the numbers.
std::vector<std::vector<uint64_t>> planned_buckets(const penstock_model& model, uint32_t phase);

}  // namespace mgwfbp

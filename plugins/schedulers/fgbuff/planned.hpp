// FGBuff's planner as its authors meant it, by times measured in the running job.
#pragma once

#include <penstock/scheduler.h>

#include <cstdint>
#include <vector>

namespace fgbuff {

// Returns the buckets of one phase for a model with measured times, in order of priority.
// `first_count`: most gradients in the first bucket. Always ends, for any numbers.
std::vector<std::vector<uint64_t>> planned_buckets(const penstock_model& model, uint32_t phase,
                                                   uint64_t first_count);

}  // namespace fgbuff

// RGMerge's buffers: decides how many ready gradients each merge phase takes, so that sending ends
// soonest.
#pragma once

#include <penstock/scheduler.h>

#include <cstdint>
#include <vector>

namespace rgmerge {

// Returns the buckets of one phase for a model with measured times; they are runs of gradients in
// order of readiness. Among all cuts of that order into runs, the last bucket of this cut is
// decoded soonest, on an engine that encodes a bucket once its last gradient is ready, one bucket
// after the other, and a link that carries one bucket after the other:
//   engine[j] = max(engine[j-1], ready[j]) + caution * encode[j]
//   link[j]   = max(link[j-1], engine[j]) + exchange[j]
//   end       = link[last] + decode[last]
// Always ends, for any numbers. Above kMostUnits gradients, neighbours are joined first, so that
// planning takes milliseconds.
std::vector<std::vector<uint64_t>> merged_buckets(const penstock_model& model, uint32_t phase,
                                                  double caution);

constexpr uint64_t kMostUnits = 192;

}  // namespace rgmerge

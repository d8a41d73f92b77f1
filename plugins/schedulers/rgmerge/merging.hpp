// RGMerge's buffers: how many ready gradients each merge phase takes, so that sending ends soonest.
#pragma once

#include <penstock/scheduler.h>

#include <cstdint>
#include <vector>

namespace rgmerge {

// Buckets of one phase for a model with measured times, runs of gradients in order of readiness. Of
// all ways to cut that order into runs this is one whose last bucket is decoded soonest, on an
// engine that encodes a bucket once its last gradient is ready, one after the other, and a link
// that takes one bucket after the other:
//   engine[j] = max(engine[j-1], ready[j]) + caution * encode[j]
//   link[j]   = max(link[j-1], engine[j]) + exchange[j]
//   end       = link[last] + decode[last]
// Always ends, whatever the numbers; above kMostUnits gradients neighbours are joined first, so
// that planning takes milliseconds.
std::vector<std::vector<uint64_t>> merged_buckets(const penstock_model& model, uint32_t phase,
                                                  double caution);

constexpr uint64_t kMostUnits = 192;

}  // namespace rgmerge

// Chooses the placement of a bucket.
#pragma once

#include "core/bucket/placement.hpp"

namespace penstock {

// INTERNAL if the bucket's route cannot carry device-resident pieces. Such schemes were refused
// before, when the scheme was bound. [control]
Status check_way(const BucketRun& bucket);
// Makes the placement that the bucket's pieces need. Everything else of the bucket must be laid
// out. [control]
Result<std::unique_ptr<Placement>> make_placement(BucketRun& bucket);

}  // namespace penstock

// Which placement a bucket has.
#pragma once

#include "core/bucket/placement.hpp"

namespace penstock {

// INTERNAL if the bucket's route does not carry pieces that are worked on on a device; fit has
// refused such schemes before. [control]
Status check_way(const BucketRun& bucket);
// Makes it by the bucket's pieces. All else of the bucket is laid out. [control]
Result<std::unique_ptr<Placement>> make_placement(BucketRun& bucket);

}  // namespace penstock

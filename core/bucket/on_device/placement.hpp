// Which placement a bucket has.
#pragma once

#include "core/bucket/placement.hpp"

namespace penstock {

// INTERNAL where the bucket's route has no way for pieces that are worked on on a device, which was
// known before they were. [control]
Status check_way(const BucketRun& bucket);
// By its pieces, which know where they lie. All else of the bucket is laid out. [control]
Result<std::unique_ptr<Placement>> make_placement(BucketRun& bucket);

}  // namespace penstock

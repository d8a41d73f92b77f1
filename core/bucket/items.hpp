// What the plugins ask for the items of a bucket: one call per compressor and one per memory, for
// methods may look at all items of a bucket at once.
#pragma once

#include "core/bucket/bucket.hpp"
#include "core/state/state_store.hpp"

namespace penstock {

// The largest that calls of a bucket want, and who wants it.
struct ScratchNeed {
  uint64_t bytes = 0;
  std::string compressor;
  size_t n_gradients = 0;
};

// Completes the items but for their payloads: needs, states, work. Instances, pieces and dtypes are
// set. `scratch` grows to what the bucket's calls want. [control]
Status plan_items(BucketRun& bucket, StateStore& states, ScratchNeed& scratch);

}  // namespace penstock

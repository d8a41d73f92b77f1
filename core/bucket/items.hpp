// What the plugins ask for the items of a coding. Each pair of compressor and memory is asked once,
// because methods may look at all items of a bucket at once.
#pragma once

#include "core/bucket/bucket.hpp"
#include "core/fit/fitting.hpp"
#include "core/state/state_store.hpp"

namespace penstock {

// The most scratch that calls of a bucket want, and who wants it.
struct ScratchNeed {
  uint64_t bytes = 0;
  std::string compressor;
  size_t n_gradients = 0;
};

// Makes the codings of the bucket's route with their items: one for each piece, or one for each
// owner of a part of a piece. The pieces are set. [control]
void make_codings(BucketRun& bucket, const Fitting& fitting);

// Completes the items but for their payloads: needs, states, work. `scratch` grows to what the
// bucket's calls want. [control]
Status plan_items(BucketRun& bucket, Coding& coding, StateStore& states, ScratchNeed& scratch);

}  // namespace penstock

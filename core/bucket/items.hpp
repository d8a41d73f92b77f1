// Asks plugins for their needs for the items of a coding. Each pair of compressor and memory is
// asked once, because a method may inspect all items of a bucket together.
#pragma once

#include "core/bucket/bucket.hpp"
#include "core/fit/bound_scheme.hpp"
#include "core/state/state_store.hpp"

namespace penstock {

// The largest scratch that the calls of a bucket want, and the compressor that wants it.
struct ScratchNeed {
  uint64_t bytes = 0;
  std::string compressor;
  size_t n_gradients = 0;
};

// Makes the codings of the bucket's route with their items: one item for each piece, or one item
// for each owner of a part of a piece. The pieces must be set. [control]
void make_codings(BucketRun& bucket, const BoundScheme& bound_scheme);

// Completes the items except for their payloads: needs, states, work. `scratch` grows to the need
// of the bucket's calls. [control]
Status plan_items(BucketRun& bucket, Coding& coding, StateStore& states, ScratchNeed& scratch);

}  // namespace penstock

// A bucket's step without the other ranks: what this one sends arrives as that of every rank.
#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

// From its gradients, which lie where they should, to its results; encode_us and decode_us say what
// it took. Sends nothing, and waits for its device where it has one. DEADLINE_EXCEEDED for one that
// does not come to an end, and what plugins and device say. [engine]
Status run_alone(BucketRun& bucket);

}  // namespace penstock

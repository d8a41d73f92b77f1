// A bucket's program: a flat list of the stages of one step, made when the plan is. Unrolled over
// legs and rounds, so that the job (job.hpp) counts neither. What is sent with top-k
// and a residual over route `flat` takes nine stages: load, begin, compensate, encode, exchange,
// read, decode, finish, store; a tenth, "give back", is that of a void bucket.
#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

// After all else of the bucket is laid out. Errors: what a device's stages need. [control]
Status make_program(BucketRun& bucket);

}  // namespace penstock

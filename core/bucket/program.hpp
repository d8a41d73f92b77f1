// A bucket's program: a flat list of the stages of one step, made with the plan. The list is
// unrolled over legs and rounds, so that the job (job.hpp) counts neither. Top-k with a residual on
// route `flat` takes nine stages: load, begin, compensate, encode, exchange, read, decode, finish,
// store. A tenth stage, "give back", runs only if the bucket is void.
#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

// Makes the program after everything else of the bucket is laid out. Errors: the errors of a
// device's stages. [control]
Status make_program(BucketRun& bucket);

}  // namespace penstock

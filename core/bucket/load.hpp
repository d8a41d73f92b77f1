// What a bucket takes in at its beginning, and what an owner takes in of sums.
#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

// The gradients of this step. Widens gradients of 16 bits where compressor or memory works in
// float32, adds what a replaced memory has left over, and looks for values that are not finite.
// Gradients on a device were looked at before, and only take part in the result.
class Load final : public Stage {
 public:
  Load() : Stage("load") {}
  bool runs(const BucketRun&) const override { return true; }
  Status begin(BucketRun& bucket) override;
};

// Adds `scale` times what a replaced memory left over of `range` of a gradient to `values`.
void add_carry(const Gradient& gradient, const ElementRange& range, uint32_t dtype, void* values,
               double scale);

// The factor by which an owner multiplies a sum before it encodes it: 1 where the memories work in
// true units, else 1 / grad_scale.
double to_true_units(const BucketRun& bucket, const ItemRun& sum);
// An owner's coding takes its sums in such units, and looks at them as at gradients. [engine]
void take_sums(BucketRun& bucket, Coding& coding);

}  // namespace penstock

// What a bucket takes in at its beginning, and what an owner takes in of sums.
#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

// Resets what the bucket knows of a step, and takes the gradients of this one. On the host it
// widens gradients of 16 bits if compressor or memory works in float32, adds the carry if the
// memory has neither momentum nor shift (Finish adds the others), and looks for values that are not
// finite. Inspect has looked at gradients on a device, and Load reads what it found.
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
// Scales an owner's sums to such units, and looks for values that are not finite. [engine]
void take_sums(BucketRun& bucket, Coding& coding);

}  // namespace penstock

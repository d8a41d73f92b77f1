// What a bucket takes in at its beginning, and what an owner takes in of sums.
#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

// The gradients of this step: widens to float32 where the compressor wants that, adds what an
// earlier memory has left, and looks for values that are not finite.
class Load final : public Stage {
 public:
  Load() : Stage("load") {}
  bool runs(const BucketRun&) const override { return true; }
  Status begin(BucketRun& bucket) override;
};

// Adds `scale` times what a replaced memory left over of `range` of a gradient to `values`.
void add_carry(const Gradient& gradient, const ElementRange& range, uint32_t dtype, void* values,
               double scale);

// What the sum of an item's gradients has to be multiplied with before its owner codes it again: it
// is in the units of its ranks' memories, and where those keep nothing it has the frontend's scale.
double to_true_units(const BucketRun& bucket, const ItemRun& sum);
// An owner's coding takes its sums in such units, and looks at them as at gradients. [engine]
void take_sums(BucketRun& bucket, Coding& coding);

}  // namespace penstock

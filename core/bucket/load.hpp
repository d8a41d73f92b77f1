// A bucket takes in its gradients here, and an owner takes in its sums.
#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

// Resets the facts of the last step in the bucket, and takes the gradients of the current step. On
// the host it widens 16-bit gradients if compressor or memory works in float32, adds the carry if
// the memory has neither momentum nor shift (Finish adds the other carries), and inspects the
// values for numbers that are not finite, unless Encode will inspect them. Inspect has inspected
// gradients on a device, and Load reads its findings.
class Load final : public Stage {
 public:
  Load() : Stage("load") {}
  bool runs(const BucketRun&) const override { return true; }
  Status begin(BucketRun& bucket) override;
};

// Notes the gradient, if it is the first of this step whose values are not finite. [engine]
void note_nonfinite(SetContext& context, const Gradient& gradient);

// Adds `scale` times the carry in `range` of a gradient to `values`.
void add_carry(const Gradient& gradient, const ElementRange& range, uint32_t dtype, void* values,
               double scale);

// The factor by which an owner multiplies a sum before it encodes the sum: 1 if the memories work
// in true units, else 1 / grad_scale.
double to_true_units(const BucketRun& bucket, const ItemRun& sum);
// Whether the item's values are a sum over ranks that this coding inspects: finite gradients may
// have a sum that is not finite. Sums that travel as they are need not be finite.
bool is_inspected_as_sum(const Coding& coding, const ItemRun& item);
// Scales an owner's sums by this factor, and inspects the sums of owners and of hosts for values
// that are not finite. [engine]
void take_sums(BucketRun& bucket, Coding& coding);

}  // namespace penstock

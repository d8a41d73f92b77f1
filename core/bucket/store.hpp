#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

// Results into the gradients' own storage: NaN where the bucket is void, zeros where its gradients
// are left out of this phase. Where that is on a device the copies are queued.
class Store final : public Stage {
 public:
  Store() : Stage("store") {}
  bool runs(const BucketRun&) const override { return true; }
  Status begin(BucketRun& bucket) override;
};

}  // namespace penstock

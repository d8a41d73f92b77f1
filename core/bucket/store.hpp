#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

// Writes results into the gradients' own storage: NaN if the bucket is void, zeros for gradients
// that this phase leaves out. If the storage is on a device, the copies are queued.
class Store final : public Stage {
 public:
  Store() : Stage("store") {}
  bool runs(const BucketRun&) const override { return true; }
  Status begin(BucketRun& bucket) override;
};

}  // namespace penstock

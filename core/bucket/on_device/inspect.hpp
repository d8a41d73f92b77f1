// The look at gradients that come from devices, and at sums of an owner that lie there.
#pragma once

#include "core/bucket/on_device/device.hpp"

namespace penstock {

// A stream of its own (Residents::looks) waits for the gradients and looks for values that are not
// finite. The job waits for what it finds, and for gradients that are copied to the host.
class Inspect final : public Stage {
 public:
  // null: no gradient is worked on there.
  explicit Inspect(DevicePart* part) : Stage("inspect", Part::none, Wait::device), part_(part) {}
  bool runs(const BucketRun&) const override { return true; }
  Status begin(BucketRun& bucket) override;
  Status poll(BucketRun& bucket, uint64_t look, bool& has_come) override;
  Status end(BucketRun& bucket) override;

 private:
  DevicePart* const part_;
  size_t n_arrived_ = 0;  // pieces whose copies have ended
};

// On route `shard`: scales the sums that this rank owns and encodes again to true units, and looks
// for values that are not finite.
class InspectSums final : public DeviceStage {
 public:
  explicit InspectSums(Coding& coding) : DeviceStage("inspect sums"), coding_(coding) {}
  Status begin(BucketRun& bucket) override;
  bool waits(const BucketRun& bucket) const override { return !part_of(bucket).looked_at.empty(); }

 private:
  Coding& coding_;
};

// Queues the copies of results that are in host memory to the application's storage.
class GiveOut final : public Stage {
 public:
  GiveOut() : Stage("give out") {}
  bool runs(const BucketRun&) const override { return true; }
  Status begin(BucketRun& bucket) override;
};

// Waits until the results are in the application's storage on its device. Runs only where somebody
// is told of each result.
class Return final : public Stage {
 public:
  Return() : Stage("return", Part::none, Wait::device) {}
  bool runs(const BucketRun& bucket) const override { return bucket.context.results_are_told; }
  Status begin(BucketRun&) override {
    n_returned_ = 0;
    return {};
  }
  Status poll(BucketRun& bucket, uint64_t look, bool& has_come) override;

 private:
  size_t n_returned_ = 0;
};

}  // namespace penstock

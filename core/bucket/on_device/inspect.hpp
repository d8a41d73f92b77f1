// The inspection of gradients that come from devices, and of an owner's sums that lie on a device.
#pragma once

#include "core/bucket/on_device/device.hpp"

namespace penstock {

// A stream of its own (Residents::inspection) waits for the gradients and searches them for values
// that are not finite. The job waits for the findings, and for gradients that are copied to the
// host.
class Inspect final : public Stage {
 public:
  // `part` is null if no gradient is device-resident.
  explicit Inspect(DevicePart* part) : Stage("inspect", Part::none, Wait::device), part_(part) {}
  bool runs(const BucketRun&) const override { return true; }
  Status begin(BucketRun& bucket) override;
  Status poll(BucketRun& bucket, uint64_t pass, bool& has_come) override;
  Status end(BucketRun& bucket) override;

 private:
  DevicePart* const part_;
  size_t n_arrived_ = 0;  // pieces whose copies have ended
};

// On route `shard`: scales the sums that this rank owns and encodes again to true units, and
// searches the sums for values that are not finite.
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

// Waits until the results are in the application's storage on its device. Runs only if
// SetContext::results_are_notified.
class Return final : public Stage {
 public:
  Return() : Stage("return", Part::none, Wait::device) {}
  bool runs(const BucketRun& bucket) const override { return bucket.context.results_are_notified; }
  Status begin(BucketRun&) override {
    n_returned_ = 0;
    return {};
  }
  Status poll(BucketRun& bucket, uint64_t pass, bool& has_come) override;

 private:
  size_t n_returned_ = 0;
};

}  // namespace penstock

// Copies between device and host that a coding needs.
#pragma once

#include "core/bucket/on_device/device.hpp"

namespace penstock {

// Copies the scalars that memories have measured on the device into the prologue.
class FetchScalars final : public DeviceStage {
 public:
  explicit FetchScalars(Coding& coding) : DeviceStage("fetch scalars"), coding_(coding) {}
  bool runs(const BucketRun& bucket) const override {
    return Stage::runs(bucket) && !coding_.nonfinite;
  }
  Status begin(BucketRun& bucket) override;
  Status end(BucketRun& bucket) override;

 private:
  Coding& coding_;
};

// Fetches the counts of a round, if encode has left some counts on the device.
class FetchCounts final : public StageOfRound<DeviceStage> {
 public:
  FetchCounts(Leg& leg, uint32_t round) : StageOfRound(leg, round, "fetch counts", Part::encode) {}
  bool runs(const BucketRun& bucket) const override;
  Status begin(BucketRun& bucket) override;
  Status end(BucketRun& bucket) override;
};

// Copies the payloads of a round that were encoded on the device into the leg's messages.
class FetchPayloads final : public StageOfRound<DeviceStage> {
 public:
  FetchPayloads(Leg& leg, uint32_t round)
      : StageOfRound(leg, round, "fetch payloads", Part::encode) {}
  bool runs(const BucketRun& bucket) const override {
    return Stage::runs(bucket) && !leg_.coding->nonfinite;
  }
  Status begin(BucketRun& bucket) override;
};

// Copies the payloads of other ranks to the device, where decode finds them.
class Upload final : public RoundStage {
 public:
  Upload(Leg& leg, uint32_t round) : RoundStage(leg, round, "upload", Part::decode) {}
  Status begin(BucketRun& bucket) override;
};

// Whether a round has messages with payloads in host memory. These payloads are fetched and
// uploaded.
bool has_payloads_on_host(const Leg& leg, uint32_t round);

}  // namespace penstock

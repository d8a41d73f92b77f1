// Messages that go from device to device, over the transport that a run has for that (decision
// 0022). Of what is worked on on a device, sums and pairs go so: no host has to look at their
// values. What hosts have to know of them is announced before (announcement.hpp). Indices of peers
// are looked at on the device, before decode uses them.
#pragma once

#include "core/bucket/announcement.hpp"
#include "core/bucket/on_device/device.hpp"

namespace penstock {

// Whether a round of an item goes so: known at plan time. Ranks that answer differently are found
// when their needs are compared.
bool goes_directly(const Coding& coding, const ItemRun& item, uint32_t round);
// Whether something of an item goes so: some round, or what the ranks of a host add.
bool sends_directly(const BucketRun& bucket, const Coding& coding, const ItemRun& item);

// Room for what is found of peers' indices, after the messages are laid out. [control]
Status lay_out_verdicts(DevicePart& part, BucketRun& bucket);

// ---- stages of a round, beside those of its announcement ----

// Sets what the round's announced messages send; where counts vary it copies sections together.
class Pack final : public RoundStage {
 public:
  Pack(Leg& leg, uint32_t round) : RoundStage(leg, round, "pack", Part::encode) {}
  bool runs(const BucketRun& bucket) const override;
  Status begin(BucketRun& bucket) override;
};

// For a transport that knows no streams: waits until the device has finished what is sent.
class FinishSends final : public DeviceStage {
 public:
  explicit FinishSends(Leg& leg) : DeviceStage("finish sends", Part::exchange), leg_(leg) {}
  bool runs(const BucketRun& bucket) const override {
    return Stage::runs(bucket) && Ticket::is_taken(leg_);
  }
  Status begin(BucketRun&) override { return {}; }  // Pack has recorded it

 private:
  Leg& leg_;
};

// In a trial without the other ranks it stands in place of ticket and send: the device copies to
// itself, for every rank.
class EchoDirect final : public RoundStage {
 public:
  EchoDirect(Leg& leg, uint32_t round) : RoundStage(leg, round, "echo direct") {}
  Status begin(BucketRun& bucket) override;
};

// The device looks at the indices that have arrived. INVALID_PAYLOAD.
class CheckIndices final : public StageOfRound<DeviceStage> {
 public:
  CheckIndices(Leg& leg, uint32_t round)
      : StageOfRound(leg, round, "check indices", Part::decode) {}
  bool runs(const BucketRun& bucket) const override {
    return Stage::runs(bucket) && Ticket::is_taken(leg_);
  }
  Status begin(BucketRun& bucket) override;
  bool waits(const BucketRun& bucket) const override { return !part_of(bucket).lists.empty(); }
  Status end(BucketRun& bucket) override;
};

// Whether the transport of what goes directly knows no streams. [control]
bool takes_finished(const Leg& leg, uint32_t round);

}  // namespace penstock

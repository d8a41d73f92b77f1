// Messages that travel from device to device, over a transport of the run that can do this
// (decision 0022). The payloads of device-resident items that are sums or pairs travel in this
// manner, because no host has to inspect their values. The facts that hosts need are announced
// before (announcement.hpp). Indices from other ranks are checked on the device before decode uses
// them.
#pragma once

#include "core/bucket/announcement.hpp"
#include "core/bucket/on_device/device.hpp"

namespace penstock {

// Whether a round of an item travels directly, from device to device. This is known at plan time.
// If ranks answer differently, the comparison of their needs finds it.
bool goes_directly(const Coding& coding, const ItemRun& item, uint32_t round);
// Whether some data of an item travels directly: a round, or the values that the ranks of a host
// add.
bool sends_directly(const BucketRun& bucket, const Coding& coding, const ItemRun& item);

// Makes room for the device's findings on the indices of other ranks, after the messages are laid
// out. [control]
Status lay_out_verdicts(DevicePart& part, BucketRun& bucket);

// ---- stages of a round, besides the stages of its announcement ----

// Sets the data that the round's announced messages send. If counts vary, it copies sections
// together.
class Pack final : public RoundStage {
 public:
  Pack(Leg& leg, uint32_t round) : RoundStage(leg, round, "pack", Part::encode) {}
  bool runs(const BucketRun& bucket) const override;
  Status begin(BucketRun& bucket) override;
};

// For a transport that does not use streams: waits until the device has finished the data to send.
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

// In a trial without the other ranks, this stage replaces `ticket` and `send`: the device copies
// the data to itself, once for every rank.
class EchoDirect final : public RoundStage {
 public:
  EchoDirect(Leg& leg, uint32_t round) : RoundStage(leg, round, "echo direct") {}
  Status begin(BucketRun& bucket) override;
};

// The device checks the received indices. INVALID_PAYLOAD.
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

// Whether the transport of the round's direct messages does not use streams. [control]
bool takes_finished(const Leg& leg, uint32_t round);

}  // namespace penstock

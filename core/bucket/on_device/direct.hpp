// Messages that go from device to device, over the transport that a run has for that (decision
// 0022). Of what is worked on on a device, sums and pairs go so: no host has to look at their
// values. What hosts have to know of them goes before, in host memory:
//
//   header   an all-gather: whether gradients are finite, and of pairs how many each rank sends
//   turn     a broadcast, when all headers have come: the number of the exchange on the channel
//
// So every rank knows all counts, and a void bucket before anything has left a device. Indices of
// peers are looked at on the device, before decode uses them.
#pragma once

#include "core/bucket/on_device/device.hpp"

namespace penstock {

// Whether a round of an item goes so: known at plan time. Every rank answers alike, or the needs
// that ranks compare differ.
bool goes_directly(const Coding& coding, const ItemRun& item, uint32_t round);
// Whether something of it goes so: some round, or what the ranks of a host add.
bool sends_directly(const BucketRun& bucket, const Coding& coding, const ItemRun& item);

// Header and turn of a round, where one of its messages goes so. [control]
void lay_out_prelude(BucketRun& bucket, Leg& leg, uint32_t round);
// Room for what is found of peers' indices, after the messages are laid out. [control]
Status lay_out_verdicts(BucketRun& bucket);

// ---- stages behind the exchange of a round's headers ----

// What the headers say: whether the bucket is void, or the sum of this host, and where payloads
// will lie. INVALID_PAYLOAD.
class ReadHeaders final : public RoundStage {
 public:
  ReadHeaders(Leg& leg, uint32_t round) : RoundStage(leg, round, "read headers") {}
  bool runs(const BucketRun& bucket) const override { return leg_.goes(bucket); }
  Status begin(BucketRun& bucket) override;
};

// Points the round's messages at what they send.
class Pack final : public RoundStage {
 public:
  Pack(Leg& leg, uint32_t round) : RoundStage(leg, round, "pack", Part::encode) {}
  bool runs(const BucketRun& bucket) const override;
  Status begin(BucketRun& bucket) override;
};

// Learns the number of the exchange from the first rank. Where a host has no sum nothing is sent in
// this step: no number is drawn, and the message that tells it is skipped.
class Ticket final : public RoundStage {
 public:
  Ticket(Leg& leg, uint32_t round)
      : RoundStage(leg, round, "ticket", Part::exchange, Wait::messages) {}
  Status begin(BucketRun& bucket) override;
  bool waits(const BucketRun&) const override { return is_taken(leg_); }
  // Whether something goes from device to device in this step.
  static bool is_taken(const Leg& leg) {
    return !leg.kind.is_dense() || leg.tells || !leg.coding->nonfinite;
  }
};

// Where the transport knows no streams: what is sent has to lie there.
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

class Send final : public RoundStage {
 public:
  Send(Leg& leg, uint32_t round) : RoundStage(leg, round, "send", Part::exchange, Wait::messages) {}
  bool runs(const BucketRun& bucket) const override {
    return Stage::runs(bucket) && Ticket::is_taken(leg_);
  }
  Status begin(BucketRun& bucket) override;
};

// In place of ticket and sends, where a bucket is tried without the other ranks: from this
// device to itself, for every rank.
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
  bool waits(const BucketRun& bucket) const override { return !bucket.device->lists.empty(); }
  Status end(BucketRun& bucket) override;
};

// Whether the transport of what goes directly knows no streams. [control]
bool takes_finished(const Leg& leg, uint32_t round);

inline bool has_direct(const Leg& leg, uint32_t round) {
  return leg.preludes[round].header != nullptr;
}
// Fills in the header of a round: what goes is known. [engine]
void write_header(BucketRun& bucket, Leg& leg, uint32_t round);

}  // namespace penstock

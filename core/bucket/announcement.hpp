// Messages that are announced: of what they carry the hosts are told before, in host memory, since
// they cannot look at it, or must know its size.
//
//   header   an all-gather: whether gradients are finite, and of pairs how many each rank sends
//   turn     a broadcast, when all headers have come: the number of the exchange on the channel
//
// So every rank knows all counts, and a void bucket before anything has left. Messages from device
// to device go so (on_device/direct.hpp, decision 0022).
#pragma once

#include "core/bucket/gathers.hpp"

namespace penstock {

// What a rank tells of all that it sends in the round.
struct HeaderMessage final : MessageRun {
  std::string_view name() const override { return "header"; }
  Status prepare(Leg& leg, uint32_t round) override;
};

struct TurnMessage final : MessageRun {
  std::string_view name() const override { return "turn"; }
};

// Header and turn of a round, where one of its messages is announced. [control]
void lay_out_announcement(BucketRun& bucket, Leg& leg, uint32_t round);

inline bool is_announced(const Leg& leg, uint32_t round) {
  return leg.preludes[round].header != nullptr;
}
// ---- stages behind the exchange of a round's headers ----

// What the headers say: whether the bucket is void, or the sum of this host, and where payloads
// will lie. INVALID_PAYLOAD.
class ReadHeaders final : public RoundStage {
 public:
  ReadHeaders(Leg& leg, uint32_t round) : RoundStage(leg, round, "read headers") {}
  bool runs(const BucketRun& bucket) const override { return leg_.goes(bucket); }
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

class Send final : public RoundStage {
 public:
  Send(Leg& leg, uint32_t round) : RoundStage(leg, round, "send", Part::exchange, Wait::messages) {}
  bool runs(const BucketRun& bucket) const override {
    return Stage::runs(bucket) && Ticket::is_taken(leg_);
  }
  Status begin(BucketRun& bucket) override;
};

}  // namespace penstock

// Announced messages. Before such a message every rank sends a header through host memory, because
// a host cannot read what lies on a device and must know its size.
//
//   header   an all-gather: whether gradients are finite, and of pairs how many each rank sends
//   turn     a broadcast, when all headers have come: the number of the exchange on the channel
//
// So every rank knows all counts, and whether the bucket is void, before any payload is sent.
// Messages from device to device are announced (on_device/direct.hpp, decision 0022).
#pragma once

#include "core/bucket/gathers.hpp"

namespace penstock {

// Carries what a rank says of all that it sends in the round.
struct HeaderMessage final : MessageRun {
  std::string_view name() const override { return "header"; }
  Status prepare(Leg& leg, uint32_t round) override;
};

struct TurnMessage final : MessageRun {
  std::string_view name() const override { return "turn"; }
};

// Adds header and turn to a round in which some message is announced. [control]
void lay_out_announcement(BucketRun& bucket, Leg& leg, uint32_t round);

inline bool is_announced(const Leg& leg, uint32_t round) {
  return leg.announcements[round].header != nullptr;
}
// ---- stages behind the exchange of a round's headers ----

// Reads the headers of all ranks: whether the bucket, or the sum of this host, is void, and where
// payloads will lie. INVALID_PAYLOAD.
class ReadHeaders final : public RoundStage {
 public:
  ReadHeaders(Leg& leg, uint32_t round) : RoundStage(leg, round, "read headers") {}
  bool runs(const BucketRun& bucket) const override { return leg_.goes(bucket); }
  Status begin(BucketRun& bucket) override;
};

// The first rank of the group draws a turn, which is the number of the exchange on the channel, and
// the turn message tells it to the others. If the sum of the host is not finite the message is
// skipped, because nothing is sent in this step.
class Ticket final : public RoundStage {
 public:
  Ticket(Leg& leg, uint32_t round)
      : RoundStage(leg, round, "ticket", Part::exchange, Wait::messages) {}
  Status begin(BucketRun& bucket) override;
  bool waits(const BucketRun&) const override { return is_taken(leg_); }
  // Whether an announced message is sent in this step.
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

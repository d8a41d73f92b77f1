// Announced messages: before such a message every rank sends a header through host memory, because
// a host cannot read the data that lies on a device and must know its size.
//
//   header   an all-gather: whether the sender's gradients are finite, and the kinds and counts of
//            the payloads that it will send in an announced gather
//   ticket   a broadcast after all headers have arrived: the number of the exchange on the channel
//
// So every rank knows all counts, and whether the bucket is void, before any payload is sent.
// Messages from device to device are announced (on_device/direct.hpp, decision 0022).
#pragma once

#include "core/bucket/gathers.hpp"

namespace penstock {

// Carries the flags of this rank, and the kinds and counts of its payloads in the announced gather
// of the round.
struct HeaderMessage final : MessageRun {
  std::string_view name() const override { return "header"; }
  Status prepare(Leg& leg, uint32_t round) override;
};

struct TicketMessage final : MessageRun {
  std::string_view name() const override { return "ticket"; }
};

// Adds a header and a ticket to the round if one of its messages is announced. [control]
void lay_out_announcement(BucketRun& bucket, Leg& leg, uint32_t round);

inline bool is_announced(const Leg& leg, uint32_t round) {
  return leg.announcements[round].header != nullptr;
}
// ---- stages after the exchange of a round's headers ----

// Reads the headers of all ranks. From the headers it learns whether the bucket, or the sum of this
// host, is void, and it computes where payloads will lie. INVALID_PAYLOAD, MISMATCH.
class ReadHeaders final : public RoundStage {
 public:
  ReadHeaders(Leg& leg, uint32_t round) : RoundStage(leg, round, "read headers") {}
  bool runs(const BucketRun& bucket) const override { return leg_.goes(bucket); }
  Status begin(BucketRun& bucket) override;
};

// The first rank of the group draws a ticket, which is the number of the exchange on the channel.
// The ticket message brings it to the other ranks. If the sum of the host is not finite, the ticket
// is skipped, because no announced message is sent in this step.
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

// Sends the announced messages of a round, ordered by the ticket.
class Send final : public RoundStage {
 public:
  Send(Leg& leg, uint32_t round) : RoundStage(leg, round, "send", Part::exchange, Wait::messages) {}
  bool runs(const BucketRun& bucket) const override {
    return Stage::runs(bucket) && Ticket::is_taken(leg_);
  }
  Status begin(BucketRun& bucket) override;
};

}  // namespace penstock

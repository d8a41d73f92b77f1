// The stages that send a bucket's messages to the other ranks and read the messages that arrive.
#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

// Sends the prologue of a coding. It adds up the scalars that the memories of all ranks have
// measured, and notifies every rank if gradients of some rank are not finite.
class Ask final : public Stage {
 public:
  explicit Ask(Coding& coding) : Stage("ask", Part::exchange, Wait::messages), coding_(coding) {}
  Status begin(BucketRun& bucket) override;
  Status end(BucketRun& bucket) override;

 private:
  Coding& coding_;
};

// Sends the messages of a round that are not announced, and the headers of the announced messages.
class Exchange final : public RoundStage {
 public:
  Exchange(Leg& leg, uint32_t round);
  bool runs(const BucketRun& bucket) const override { return leg_.goes(bucket); }
  Status begin(BucketRun& bucket) override;

 private:
  std::vector<MessageRun*> messages_;
};

// Finds out whether the bucket is void, points the received payloads into the buffers and decodes
// coded indices. On dense legs it takes the sum of this owner, or copies the results back.
class Read final : public RoundStage {
 public:
  Read(Leg& leg, uint32_t round)
      : RoundStage(leg, round, "read", leg.kind.decodes ? Part::decode : Part::none) {}
  bool runs(const BucketRun& bucket) const override { return leg_.goes(bucket); }
  Status begin(BucketRun& bucket) override;
};

// Fills in the messages before they are sent, and codes their indices. On a leg that encodes, the
// time counts as encode, because it is work of the engine. [engine]
Status prepare(BucketRun& bucket, Leg& leg, uint32_t round,
               const std::vector<MessageRun*>& messages);

// Hands a message to the communication thread, with its number in the sequence of the link.
// [engine]
void submit(BucketRun& bucket, MessageRun& message);
// Hands over an announced message, which its ticket orders among the exchanges of all sets.
void submit_by_ticket(BucketRun& bucket, MessageRun& message, uint64_t ticket);
// On an ORDERED channel: passes the turn of a message that is not sent to the next message.
void skip(BucketRun& bucket, const MessageRun& message);
// Skips all messages of a bucket whose job never starts in this step.
void skip_all(BucketRun& bucket);

}  // namespace penstock

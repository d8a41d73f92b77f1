// What a bucket sends to the other ranks, and what it learns from what arrives.
#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

// Sends the prologue of a coding, which adds up what the memories of all ranks have measured and
// tells whether the gradients of some rank are not finite.
class Ask final : public Stage {
 public:
  explicit Ask(Coding& coding) : Stage("ask", Part::exchange, Wait::messages), coding_(coding) {}
  Status begin(BucketRun& bucket) override;
  Status end(BucketRun& bucket) override;

 private:
  Coding& coding_;
};

// Sends the messages of a round that are not announced, and the headers of those that are.
class Exchange final : public RoundStage {
 public:
  Exchange(Leg& leg, uint32_t round);
  bool runs(const BucketRun& bucket) const override { return leg_.goes(bucket); }
  Status begin(BucketRun& bucket) override;

 private:
  std::vector<MessageRun*> messages_;
};

// Finds out whether the bucket is void, and points the received payloads into the buffers. On dense
// legs it takes this owner's sum, or copies the results back.
class Read final : public RoundStage {
 public:
  Read(Leg& leg, uint32_t round) : RoundStage(leg, round, "read") {}
  bool runs(const BucketRun& bucket) const override { return leg_.goes(bucket); }
  Status begin(BucketRun& bucket) override;
};

// Hands a message to the communication thread, in its place on the link. [engine]
void submit(BucketRun& bucket, MessageRun& message);
// The same for an announced message, ordered by its turn among the exchanges of all sets.
void submit_by_turn(BucketRun& bucket, MessageRun& message, uint64_t turn);
// On ORDERED channels the turn of a message that is not sent passes to those behind it.
void skip(BucketRun& bucket, const MessageRun& message);
// All messages of a bucket whose job never starts in this step.
void skip_all(BucketRun& bucket);

}  // namespace penstock

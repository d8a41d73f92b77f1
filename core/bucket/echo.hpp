#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

// Replaces an exchange if a bucket is tried without the other ranks (SetContext::echoes): the data
// that this rank sends arrives as if every rank had sent it. Nothing leaves this rank.
class Echo final : public RoundStage {
 public:
  Echo(Leg& leg, uint32_t round);
  Status begin(BucketRun& bucket) override;

 private:
  std::vector<MessageRun*> messages_;
};

}  // namespace penstock

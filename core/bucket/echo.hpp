#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

// In place of an exchange, where a bucket is tried without the other ranks (SetContext::echoes):
// what this rank sends arrives as that of every rank. Nothing leaves it.
class Echo final : public RoundStage {
 public:
  Echo(Leg& leg, uint32_t round);
  Status begin(BucketRun& bucket) override;

 private:
  std::vector<MessageRun*> messages_;
};

}  // namespace penstock

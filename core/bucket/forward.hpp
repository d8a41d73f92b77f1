// Stages of a bucket with legs that wait for the next forward.
#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

// What was to be done in backward has ended; the legs behind this stage wait for their moment.
class Defer final : public Stage {
 public:
  explicit Defer(const Leg& leg) : Stage("defer", Part::none, Wait::next_forward), leg_(leg) {}
  bool runs(const BucketRun& bucket) const override { return leg_.goes(bucket); }
  Status begin(BucketRun& bucket) override;

 private:
  const Leg& leg_;
};

// What came in lets others go before it is decoded: the link does not rest.
class LetGo final : public Stage {
 public:
  explicit LetGo(const Leg& leg) : Stage("let go", Part::none, Wait::turn), leg_(leg) {}
  bool runs(const BucketRun& bucket) const override { return leg_.goes(bucket); }
  Status begin(BucketRun& bucket) override;

 private:
  const Leg& leg_;
};

// Backward waits for it, also where the prologue made the bucket void and nothing was sent.
class EndBackward final : public Stage {
 public:
  EndBackward() : Stage("end backward") {}
  bool runs(const BucketRun& bucket) const override { return bucket.owes_backward; }
  Status begin(BucketRun& bucket) override;
};

}  // namespace penstock

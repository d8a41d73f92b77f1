// Stages of a bucket with legs that wait for the next forward.
#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

// Notifies the set that the backward part has ended, and parks until the legs after this stage are
// launched.
class Defer final : public Stage {
 public:
  explicit Defer(const Leg& leg) : Stage("defer", Part::none, Wait::next_forward), leg_(leg) {}
  bool runs(const BucketRun& bucket) const override { return leg_.goes(bucket); }
  Status begin(BucketRun& bucket) override;

 private:
  const Leg& leg_;
};

// Notifies the set that the messages of this round have arrived, so that further buckets are
// launched, and lets the jobs of these buckets run before this job decodes. So the link is not
// idle.
class LetGo final : public Stage {
 public:
  explicit LetGo(const Leg& leg) : Stage("let go", Part::none, Wait::yield), leg_(leg) {}
  bool runs(const BucketRun& bucket) const override { return leg_.goes(bucket); }
  Status begin(BucketRun& bucket) override;

 private:
  const Leg& leg_;
};

// Ends the backward part if no `defer` has ended it, because the prologue has made the bucket void
// and nothing was sent.
class EndBackward final : public Stage {
 public:
  EndBackward() : Stage("end backward") {}
  bool runs(const BucketRun& bucket) const override { return bucket.owes_backward; }
  Status begin(BucketRun& bucket) override;
};

}  // namespace penstock

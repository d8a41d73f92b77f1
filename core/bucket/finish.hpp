// After the exchange: memories hear what was refused and taken, and sums become means. What a void
// bucket has encoded is given back.
#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

// Tells memories what the composite collective has refused and what was taken.
class RecordTaken final : public Stage {
 public:
  RecordTaken() : Stage("record", Part::decode) {}
  Status begin(BucketRun& bucket) override;
};

// Divides by the ranks if nobody has, calls finish of the first coding's memories, and puts the
// frontend's scale back. It adds the carry of a gradient whose memory has momentum or a shift; Load
// adds the others.
class Finish final : public Stage {
 public:
  Finish() : Stage("finish", Part::decode) {}
  Status begin(BucketRun& bucket) override;
};

// The bucket is void: what this rank has encoded goes back into its memories, and the turns of
// messages that it has not sent pass to the next ones.
class GiveBack final : public Stage {
 public:
  GiveBack() : Stage("give back") {}
  bool runs(const BucketRun& bucket) const override { return bucket.is_void; }
  Status begin(BucketRun& bucket) override;
};

// Whether some memory is told what was refused or taken of what the bucket sends: else it needs no
// such stage.
bool has_to_record(const BucketRun& bucket);

}  // namespace penstock

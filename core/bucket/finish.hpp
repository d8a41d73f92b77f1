// The end of what a bucket exchanged: what was refused, taken and divided; or, of a void bucket,
// given back.
#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

// Tells memories what the composite collective has refused and what was taken.
class RecordTaken final : public Stage {
 public:
  RecordTaken() : Stage("record", Part::decode) {}
  Status begin(BucketRun& bucket) override;
};

// Divides by the ranks where that is still to do, calls the memories' finish, puts the frontend's
// scale back and adds carries.
class Finish final : public Stage {
 public:
  Finish() : Stage("finish", Part::decode) {}
  Status begin(BucketRun& bucket) override;
};

// The bucket is void: what this rank took out goes back, and what it has not sent is skipped.
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

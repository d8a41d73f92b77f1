// The stages after the exchange. Memories learn which entries were refused and which were taken,
// and sums become means. The payloads of a void bucket are given back.
#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

// Notifies memories of the entries that the composite collective has refused, and of the payloads
// that were taken.
class RecordTaken final : public Stage {
 public:
  RecordTaken() : Stage("record", Part::decode) {}
  Status begin(BucketRun& bucket) override;
};

// Divides the results by the number of ranks unless they are means already, calls `finish` of the
// first coding's memories, and multiplies by the frontend's loss scale again. It adds the carry of
// a gradient whose memory has momentum or a shift; Load adds the carry of the other gradients.
class Finish final : public Stage {
 public:
  Finish() : Stage("finish", Part::decode) {}
  Status begin(BucketRun& bucket) override;
};

// Runs if the bucket is void: the payloads that this rank has encoded go back into its memories,
// and the turns of its unsent messages pass to the next messages.
class GiveBack final : public Stage {
 public:
  GiveBack() : Stage("give back") {}
  bool runs(const BucketRun& bucket) const override { return bucket.is_void; }
  Status begin(BucketRun& bucket) override;
};

// Whether the bucket needs RecordTaken: some memory has `record`, or some item travels over a
// composite collective.
bool has_to_record(const BucketRun& bucket);

}  // namespace penstock

// The stages in which a coding calls its memories and compressors, from its first leg on.
#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

// Must be held while a plugin is called, so that a warning can name a call that does not return.
inline PluginCall plugin_call(const BucketRun& bucket, std::string_view kind, std::string_view name,
                              std::string_view stage) {
  const SetContext& context = bucket.context;
  return PluginCall(context.calls, kind, name, stage, bucket.label, context.name,
                    context.step.index);
}

// Opens the states of the items for this step, takes an owner's sums, and points the items at their
// values. The values come from `load`, or from the leg before this coding.
class Begin final : public Stage {
 public:
  explicit Begin(Coding& coding) : Stage("begin"), coding_(coding) {}
  Status begin(BucketRun& bucket) override;

 private:
  Coding& coding_;
};

// The prologue of the memories: writes the scalars that they measure on this rank into the prologue
// message. It writes zeros if the values that this rank would encode are not finite. Scalars that
// are measured on a device are added later (FetchScalars).
class Measure final : public Stage {
 public:
  explicit Measure(Coding& coding) : Stage("measure"), coding_(coding) {}
  Status begin(BucketRun& bucket) override;

 private:
  Coding& coding_;
};

// Computes `work` from `grad`, by each memory. Folded items are left to encode, and items that send
// nothing in this phase get a result of zero. If the gradients of this rank are not finite, its
// memories keep nothing.
class Compensate final : public Stage {
 public:
  explicit Compensate(Coding& coding) : Stage("compensate", Part::encode), coding_(coding) {}
  // It also runs if the prologue has made the bucket void, because the memory of a rank whose
  // gradients are finite still takes them, unless SetContext::nonfinite_is_strict.
  bool runs(const BucketRun&) const override { return coding_.has_begun; }
  Status begin(BucketRun& bucket) override;

 private:
  Status call_memories(BucketRun& bucket);
  Coding& coding_;
};

// Makes the payloads of a round from `work`, at their places in the messages of the leg. On a
// device the work is only queued, and a later stage fetches the payloads.
class Encode final : public RoundStage {
 public:
  Encode(Leg& leg, uint32_t round) : RoundStage(leg, round, "encode", Part::encode) {}
  Status begin(BucketRun& bucket) override;
};

// Makes the result from the payloads of all ranks.
class Decode final : public RoundStage {
 public:
  Decode(Leg& leg, uint32_t round) : RoundStage(leg, round, "decode", Part::decode) {}
  Status begin(BucketRun& bucket) override;
};

// Makes one call to a compressor's decode and notes its time.
Status call_decode(BucketRun& bucket, Coding& coding, CompressorCall& call);

// Checks the section counts of an own payload. INTERNAL if a count differs from the plan. Counts
// that are still on the device are not checked here.
Status check_own(const BucketRun& bucket, ItemRun& item, uint32_t round);

}  // namespace penstock

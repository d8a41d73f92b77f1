// What a coding computes, from its first leg on: the calls of its memories and compressors.
#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

// To be held while a plugin is called: a call that does not return is warned of by name.
inline PluginCall plugin_call(const BucketRun& bucket, std::string_view kind, std::string_view name,
                              std::string_view stage) {
  const SetContext& context = bucket.context;
  return PluginCall(context.calls, kind, name, stage, bucket.label, context.name,
                    context.step.index);
}

// Opens the states of the items for this step, takes an owner's sums, and points the items at their
// values: from load, or from the leg before.
class Begin final : public Stage {
 public:
  explicit Begin(Coding& coding) : Stage("begin"), coding_(coding) {}
  Status begin(BucketRun& bucket) override;

 private:
  Coding& coding_;
};

// Memory's prologue: local facts into the prologue message. Zeros where what this rank would encode
// is not finite. What is found on a device comes after it.
class Measure final : public Stage {
 public:
  explicit Measure(Coding& coding) : Stage("measure"), coding_(coding) {}
  Status begin(BucketRun& bucket) override;

 private:
  Coding& coding_;
};

// grad -> work, by each memory. Items that are folded are left to encode, and items that send
// nothing in this phase get a result of zero. On a rank whose gradients are not finite nothing is
// kept.
class Compensate final : public Stage {
 public:
  explicit Compensate(Coding& coding) : Stage("compensate", Part::encode), coding_(coding) {}
  // It runs too if the prologue has made the bucket void: the memory of a rank whose gradients are
  // finite still takes them.
  bool runs(const BucketRun&) const override { return coding_.has_begun; }
  Status begin(BucketRun& bucket) override;

 private:
  Status call_memories(BucketRun& bucket);
  Coding& coding_;
};

// Makes the payloads of a round out of work, in their places in the leg's messages. On a device the
// work is only queued, and a later stage fetches the payloads.
class Encode final : public RoundStage {
 public:
  Encode(Leg& leg, uint32_t round) : RoundStage(leg, round, "encode", Part::encode) {}
  Status begin(BucketRun& bucket) override;
};

// Makes the result out of the payloads of all ranks.
class Decode final : public RoundStage {
 public:
  Decode(Leg& leg, uint32_t round) : RoundStage(leg, round, "decode", Part::decode) {}
  Status begin(BucketRun& bucket) override;
};

// INTERNAL for counts that were not planned. Counts that are still on the device are not checked
// here.
Status check_own(const BucketRun& bucket, ItemRun& item, uint32_t round);

}  // namespace penstock

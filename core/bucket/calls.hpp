// What a bucket's job calls in a step. Each returns before anything is waited for; job.cpp puts
// them in order. All on the engine thread.
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

// Takes the gradients of this step, widens to float32 where the compressor wants that, and looks
// for values that are not finite. What the device took in the step before is known from here on.
Status take_in(BucketRun& bucket);

// Adds `scale` times what a replaced memory left over of `range` of a gradient to `values`.
void add_carry(const Gradient& gradient, const ElementRange& range, uint32_t dtype, void* values,
               double scale);

// What the sum of an item's gradients has to be multiplied with before its owner codes it again: it
// is in the units of its ranks' memories, and where those keep nothing it has the frontend's scale.
double to_true_units(const BucketRun& bucket, const ItemRun& sum);
// An owner's coding takes its sums in such units, and looks at them as at gradients.
void take_sums(BucketRun& bucket, Coding& coding);

// ---- a coding, from its first leg on ----

// Points its items at their values in this step, which an earlier leg has brought.
Status begin(BucketRun& bucket, Coding& coding);

// Memory's prologue: local facts into the prologue message. Zeros where what this rank would encode
// is not finite. What is found on a device comes after it (device.hpp).
Status measure(BucketRun& bucket, Coding& coding);

// grad -> work, by each memory. Skipped on a rank whose gradients are not finite: what it keeps
// stays as it was.
Status compensate(BucketRun& bucket, Coding& coding);

// work -> payloads of a round, in their places in the leg's messages. On a device that is queued,
// and they come after it (device.hpp). Then its time is noted.
Status encode(BucketRun& bucket, Leg& leg, uint32_t round);
// INTERNAL for counts that were not planned; those that the device has to tell are left out.
Status check_own(const BucketRun& bucket, ItemRun& item, uint32_t round);
void note_encoded(BucketRun& bucket);

// Payloads of all ranks -> out.
Status decode(BucketRun& bucket, Leg& leg, uint32_t round);

// Tells memories what was refused and what was taken, divides by the ranks, lets memories finish.
Status settle(BucketRun& bucket);

// The bucket is void: what this rank took out goes back.
Status give_up(BucketRun& bucket);

// Results into the gradients' own storage: NaN where the bucket is void. Where that is on a device
// the copies are queued.
Status give_out(BucketRun& bucket);

// ---- transfers.cpp ----

// Hands messages to the communication thread.
void send_prologue(BucketRun& bucket, Coding& coding);
Status send_round(BucketRun& bucket, Leg& leg, uint32_t round);
// Of what goes from device to device a round sends its header; then these two, one after the other,
// or, where nothing goes, none.
void send_turn(BucketRun& bucket, Leg& leg, uint32_t round);
void send_direct(BucketRun& bucket, Leg& leg, uint32_t round);
void skip_turn(BucketRun& bucket, Leg& leg, uint32_t round);

// A void bucket sends nothing more: on ORDERED channels its turns pass to those behind it.
void skip_unsent(BucketRun& bucket);
void skip_all(BucketRun& bucket);  // one whose job never starts in this step

// How long what was sent took to arrive.
void note_arrival(BucketRun& bucket);
// Find out whether the bucket is void and point the received payloads into the buffers.
Status read_prologue(BucketRun& bucket, Coding& coding);
Status read_round(BucketRun& bucket, Leg& leg, uint32_t round);

}  // namespace penstock

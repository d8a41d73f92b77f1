// Laying out a bucket at plan time: payloads, messages, buffers and the lists of calls.
#pragma once

#include "core/bucket/bucket.hpp"
#include "core/state/state_store.hpp"

namespace penstock {

// How the compressor compensates and encodes in one sweep; a null table where it cannot.
struct FoldEncoder {
  const penstock_fold_encoder* table = nullptr;
  bool reads_before = false;  // from one generation of work and momentum into the next
};
FoldEncoder fold_encoder(const CompressorInstance& compressor);  // [control]

// Room for the own payload as everyone may read it: dense float32. [control]
Status make_returned(const BucketRun& bucket, const Coding& coding, ItemRun& item);

// Makes everything a step needs. Items are complete but for payloads; the channels are open.
// [control]
Status lay_out(BucketRun& bucket, StateStore& states);

// ---- messages.cpp ----

// A message of a coding with the fields that every kind has. [control]
std::unique_ptr<MessageRun> make_message(BucketRun& bucket, Coding& coding, MessageRun::Kind kind,
                                         Link& link, uint32_t pattern, uint32_t dtype);
// What is sent of its items, or received: with a twin where one of them is worked on on a device,
// and there alone where it goes directly. OUT_OF_MEMORY. [control]
Result<MessageMemory> memory_of(const BucketRun& bucket, const MessageRun& message, uint64_t bytes);
// The messages of one round in the legs of a coding, which are those from `begins` to `ends`;
// payloads have been shaped. [control]
Status lay_out_round(BucketRun& bucket, Leg& begins, Leg& ends, StateStore& states, uint32_t round);

}  // namespace penstock

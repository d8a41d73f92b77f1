// Laying out a bucket at plan time: payloads, messages, buffers and the lists of calls.
#pragma once

#include "core/bucket/bucket.hpp"
#include "core/state/state_store.hpp"

namespace penstock {

// Bytes of message buffers a bucket will take, for the fit check before anything is allocated.
uint64_t message_bytes(const BucketRun& bucket);

// How the compressor compensates and encodes in one sweep; null where it cannot. [control]
const penstock_fold_encoder* fold_encoder(const CompressorInstance& compressor);

// Makes everything a step needs. Items are complete but for payloads; the channels are open.
// [control]
Status lay_out(BucketRun& bucket, StateStore& states);

// ---- messages.cpp ----

// A message of a bucket with the fields that every kind has. [control]
std::unique_ptr<MessageRun> make_message(BucketRun& bucket, MessageRun::Kind kind, Channel* channel,
                                         uint32_t pattern, uint32_t dtype);
// The messages of one round in every leg; payloads have been shaped. [control]
Status lay_out_round(BucketRun& bucket, StateStore& states, uint32_t round);

}  // namespace penstock

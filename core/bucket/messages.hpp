// The messages of a bucket, made at plan time: which payloads travel together, and in which
// buffers.
#pragma once

#include "core/bucket/bucket.hpp"
#include "core/state/state_store.hpp"

namespace penstock {

// A message of a coding with the fields that every kind has. [control]
std::unique_ptr<MessageRun> make_message(BucketRun& bucket, Coding& coding, MessageRun::Kind kind,
                                         Link& link, uint32_t pattern, uint32_t dtype);
// Its items, and where some are worked on elsewhere than on the host, that place. [control]
void take_items(MessageRun& message, std::vector<size_t> items);
// For what is sent of its items, or received. OUT_OF_MEMORY. [control]
inline Result<WorkMemory> memory_of(const MessageRun& message, uint64_t bytes) {
  return message.place->make_for(*message.link, bytes);
}
// The messages of one round in the legs of a coding, which are those from `begins` to `ends`;
// payloads have been shaped. [control]
Status lay_out_round(BucketRun& bucket, Leg& begins, Leg& ends, StateStore& states, uint32_t round);

}  // namespace penstock

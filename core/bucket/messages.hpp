// Lays out the messages of a bucket at plan time: which payloads travel together, and in which
// buffers.
#pragma once

#include "core/bucket/bucket.hpp"
#include "core/state/state_store.hpp"

namespace penstock {

// Fills in the fields that every message of a coding has. [control]
void begin_message(MessageRun& message, BucketRun& bucket, Coding& coding, Link& link,
                   uint32_t pattern, uint32_t dtype);
template <typename Message>
std::unique_ptr<Message> make_message(BucketRun& bucket, Coding& coding, Link& link,
                                      uint32_t pattern, uint32_t dtype) {
  auto message = std::make_unique<Message>();
  begin_message(*message, bucket, coding, link, pattern, dtype);
  return message;
}
// The link of items that share a message. [control]
Link& link_of(const Coding& coding, const std::vector<size_t>& items, uint32_t round);
// Sets the items of a message, and its place if some items are not compressed on the host.
// [control]
void take_items(MessageRun& message, std::vector<size_t> items);
// Memory for the data that a message sends or receives for its items. OUT_OF_MEMORY. [control]
inline Result<WorkMemory> memory_of(const MessageRun& message, uint64_t bytes) {
  return message.place->make_for(*message.link, bytes);
}
// Makes the messages of one round, on the legs of a coding from `begins` to `ends`. The payloads
// must have been shaped. [control]
Status lay_out_round(BucketRun& bucket, Leg& begins, Leg& ends, StateStore& states, uint32_t round);

}  // namespace penstock

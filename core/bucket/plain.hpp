// Gradients that are summed as they are (decision 0003): their message is the storage that they lie
// in, where they lie behind each other in the order of the message, as in a bucket of DDP.
// Elsewhere they are copied together and back.
#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

// Whether a message of a flat leg is such a sum. Every rank answers alike.
bool is_plain(const MessageRun& message);

// Its size, and room for a copy, of which in host memory no page is taken before it is needed.
// OUT_OF_MEMORY on a device. [control]
Status lay_out_plain(MessageRun& message);

// Before the message leaves, and when it has come back. On a device copies are queued.
Status send_from_where_it_lies(MessageRun& message);
Status receive_where_it_lies(MessageRun& message);

}  // namespace penstock

// Opens and closes one channel, counts its messages and describes them in texts. [comm] unless
// stated otherwise.
#pragma once

#include "core/comm/communication.hpp"

namespace penstock {

// The number of base tags that a composite may use per message.
inline constexpr uint64_t kTagsPerMessage = 8;

// A channel with its group filled in, not yet opened. [any]
std::unique_ptr<Channel> make_channel(const Communication::OpenRequest& request);

// Calls the collective's open. A composite gets a view of its base channel that counts sent bytes.
Status open_handle(Channel& channel, const Communication::OpenRequest& request);
void abort_handle(Channel& channel);
void close_handle(Channel& channel);

// Calls the collective's progress. INTERNAL for an unknown state.
Status progress(Channel& channel, penstock_ticket* ticket, uint32_t& state);

// Adds the bytes that this rank hands over with `message`. A composite's bytes are counted by its
// base.
void count_sent(Channel& channel, const penstock_message& message);

// Bytes at `send` that a message hands over, as counted in reports. [any]
uint64_t bytes_handed_over(const penstock_message& message, uint32_t group_size);

// Bytes of the message that this rank sends to other ranks; bytes sent to two ranks count twice.
// [any]
uint64_t bytes_moved(const Channel& channel, const penstock_message& message);

Status limit_error(const Channel& channel, const penstock_message& message, uint64_t limit_us);

// The types in an answer to PENSTOCK_MEAN_EXTENSION (penstock/mean.h); null answer: no types. [any]
uint64_t mean_dtypes(const void* extension);
// The types whose mean the transport can compute. [any]
uint64_t mean_dtypes(const penstock_collective& table, void* instance);

// "all_reduce", ...; used in messages. [any]
std::string_view pattern_name(uint32_t pattern);

}  // namespace penstock

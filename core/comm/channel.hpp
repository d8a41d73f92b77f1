// Opening and closing one channel, and what is counted and said about its messages. [comm] unless
// stated otherwise.
#pragma once

#include "core/comm/communication.hpp"

namespace penstock {

// A channel with its group filled in, not yet opened. [any]
std::unique_ptr<Channel> make_channel(const Communication::OpenRequest& request);

// Calls the collective's open; for a composite with a view of its base that counts what goes out.
Status open_handle(Channel& channel, const Communication::OpenRequest& request);
void abort_handle(Channel& channel);
void close_handle(Channel& channel);

// The collective's progress. INTERNAL for a state that is none.
Status progress(Channel& channel, penstock_ticket* ticket, uint32_t& state);

// Adds what this rank hands over with `message`. Composites count with their base.
void count_sent(Channel& channel, const penstock_message& message);

// Bytes at `send` that leave with a message, as counted in reports. [any]
uint64_t bytes_handed_over(const penstock_message& message, uint32_t group_size);

// Bytes of it that this rank sends to others, each time they leave. [any]
uint64_t bytes_moved(const Channel& channel, const penstock_message& message);

Status limit_error(const Channel& channel, const penstock_message& message, uint64_t limit_us);

// What an answer to PENSTOCK_MEAN_EXTENSION says of types (penstock/mean.h); null: none. [any]
uint64_t mean_dtypes(const void* extension);
// The types of which a transport forms means. [any]
uint64_t mean_dtypes(const penstock_collective& table, void* instance);

// "all_reduce", ...; for messages. [any]
std::string_view pattern_name(uint32_t pattern);

}  // namespace penstock

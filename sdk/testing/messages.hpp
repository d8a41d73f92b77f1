// Messages of collectives, as tests send them.
#pragma once

#include <penstock/collective.h>
#include <testing/plugin.hpp>

#include <thread>

namespace penstock::test {

// A message without data, with the fields that every message has.
inline penstock_message empty_message(uint32_t pattern, uint64_t tag, uint32_t dtype,
                                      uint64_t deadline_us) {
  penstock_message message{};
  message.struct_size = sizeof message;
  message.id = tag + 1000;
  message.tag = tag;
  message.pattern = pattern;
  message.dtype = dtype;
  message.reduction = PENSTOCK_REDUCE_SUM;
  message.deadline_us = deadline_us;
  return message;
}

// Drives a submitted message to its end on the calling thread, and releases it.
inline Outcome finish(const penstock_collective& table, void* self, penstock_ticket* ticket) {
  Outcome outcome;
  uint32_t state = PENSTOCK_PENDING;
  while (outcome.ok() && state == PENSTOCK_PENDING) {
    outcome = take(table.progress(self, ticket, &state));
    if (state == PENSTOCK_PENDING) std::this_thread::yield();
  }
  table.release(self, ticket);
  return outcome;
}

// Submits a message, drives it to its end, and releases it.
inline Outcome carry(const penstock_collective& table, void* self, penstock_channel* channel,
                     const penstock_message& message) {
  penstock_ticket* ticket = nullptr;
  Outcome outcome = take(table.submit(self, channel, &message, &ticket));
  return outcome.ok() ? finish(table, self, ticket) : outcome;
}

}  // namespace penstock::test

// Copies between a message and what it is made of: made at once in host memory, queued together on
// a device. [engine]
#pragma once

#include "core/bucket/bucket.hpp"

#include <cstring>

namespace penstock {

class MessageCopies {
 public:
  enum class To { message, storage };
  // The message has room for as many as are added.
  MessageCopies(MessageRun& message, To to) : message_(message), to_(to) {
    message_.copies.clear();
  }

  // Elements of the message's dtype, on a device one of at most 4 bytes.
  void add(std::byte* in_message, std::byte* in_storage, uint64_t count) {
    std::byte* const source = to_ == To::message ? in_storage : in_message;
    std::byte* const target = to_ == To::message ? in_message : in_storage;
    const uint64_t element = dtype_bytes(message_.message.dtype);
    if (message_.is_direct())
      message_.copies.push_back({source, target, count, uint32_t(element), 0});
    else
      std::memcpy(target, source, count * element);
  }
  Status end() {
    if (!message_.is_direct()) return {};
    return message_.bucket->context.residents->stream().copy_many(message_.copies);
  }

 private:
  MessageRun& message_;
  const To to_;
};

}  // namespace penstock

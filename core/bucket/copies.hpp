// Copies between a message and the storage of its parts, in the memory of the message's place.
// [engine]
#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

class MessageCopies {
 public:
  enum class To { message, storage };
  MessageCopies(MessageRun& message, To to) : message_(message), to_(to) {
    message_.place->begin_copies(*message_.bucket);
  }

  // `count` is in elements of the message's dtype.
  void add(std::byte* in_message, std::byte* in_storage, uint64_t count) {
    std::byte* const source = to_ == To::message ? in_storage : in_message;
    std::byte* const target = to_ == To::message ? in_message : in_storage;
    message_.place->copy(*message_.bucket, source, target, count,
                         dtype_bytes(message_.message.dtype));
  }
  Status end() { return message_.place->end_copies(*message_.bucket); }

 private:
  MessageRun& message_;
  const To to_;
};

}  // namespace penstock

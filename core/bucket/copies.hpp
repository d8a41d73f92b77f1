// Copies between a message and what it is made of: made at once in host memory, queued together on
// a device. [engine]
#pragma once

#include "core/bucket/bucket.hpp"

#include <cstring>

namespace penstock {

class MessageCopies {
 public:
  // The message has room for as many as are added.
  explicit MessageCopies(MessageRun& message) : message_(message) { message_.copies.clear(); }

  // On a device whole float32 values.
  void add(const std::byte* source, std::byte* target, uint64_t bytes) {
    if (message_.is_direct())
      message_.copies.push_back({reinterpret_cast<const float*>(source),
                                 reinterpret_cast<float*>(target), bytes / sizeof(float)});
    else
      std::memcpy(target, source, bytes);
  }
  Status end() {
    if (!message_.is_direct()) return {};
    return message_.bucket->context.residents->stream().copy_many(message_.copies);
  }

 private:
  MessageRun& message_;
};

}  // namespace penstock

#include "core/bucket/plain.hpp"

#include <cstring>

namespace penstock {
namespace {

// Calls body(storage, bytes) for each gradient that has elements.
template <typename Body>
void each_stretch(const MessageRun& message, const Body& body) {
  for (const size_t position : message.items) {
    const ItemRun& item = message.coding->items[position];
    const uint64_t bytes = item.range.numel * dtype_bytes(item.dtype);
    if (bytes != 0) body(static_cast<std::byte*>(item.for_compressor.grad.data), bytes);
  }
}

// Where they begin, if each begins where the one before it ends; else null.
std::byte* one_stretch(const MessageRun& message) {
  std::byte* first = nullptr;
  std::byte* end = nullptr;
  bool is_one = true;
  each_stretch(message, [&](std::byte* storage, uint64_t bytes) {
    if (first == nullptr) first = end = storage;
    is_one = is_one && storage == end;
    end = storage + bytes;
  });
  return is_one ? first : nullptr;
}

Status copy(const MessageRun& message, std::byte* target, const std::byte* source, uint64_t bytes) {
  if (message.is_direct())
    return message.bucket->context.residents->stream().copy_on_device(target, source, bytes);
  std::memcpy(target, source, bytes);
  return {};
}

}  // namespace

bool is_plain(const MessageRun& message) {
  return message.kind == MessageRun::Kind::sum && !message.items.empty() &&
         message.coding->items[message.items.front()].passes_through;
}

Status lay_out_plain(MessageRun& message) {
  uint64_t count = 0;
  for (const size_t position : message.items) count += message.coding->items[position].range.numel;
  message.message.count = count;
  if (message.items.size() == 1) return {};
  const uint64_t bytes = count * dtype_bytes(message.message.dtype);
  if (message.is_direct()) {
    const Device& device = message.bucket->context.residents->device();
    PENSTOCK_ASSIGN(message.send, MessageMemory::make_on_device(device, bytes));
  } else {
    message.send = Buffer::unwritten(bytes);
  }
  return {};
}

Status send_from_where_it_lies(MessageRun& message) {
  std::byte* storage = one_stretch(message);
  Status status;
  if (storage == nullptr) {
    std::byte* at = storage = message.send.data();
    each_stretch(message, [&](const std::byte* values, uint64_t bytes) {
      if (status.ok()) status = copy(message, at, values, bytes);
      at += bytes;
    });
  }
  message.message.send = message.message.receive = storage;
  return status;
}

Status receive_where_it_lies(const MessageRun& message) {
  if (message.send.bytes() == 0 || message.message.receive != message.send.data()) return {};
  const std::byte* at = message.send.data();
  Status status;
  each_stretch(message, [&](std::byte* values, uint64_t bytes) {
    if (status.ok()) status = copy(message, values, at, bytes);
    at += bytes;
  });
  return status;
}

}  // namespace penstock

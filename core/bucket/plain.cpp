#include "core/bucket/plain.hpp"

#include "core/bucket/copies.hpp"
#include "core/bucket/layout.hpp"

namespace penstock {
namespace {

// Calls body(storage, elements) for each gradient that has some.
template <typename Body>
void each_stretch(const MessageRun& message, const Body& body) {
  for (const size_t position : message.items) {
    const ItemRun& item = message.coding->items[position];
    if (item.range.numel != 0)
      body(static_cast<std::byte*>(item.for_compressor.grad.data), item.range.numel);
  }
}

// Where they begin, if each begins where the one before it ends; else null.
std::byte* one_stretch(const MessageRun& message) {
  std::byte* first = nullptr;
  std::byte* end = nullptr;
  bool is_one = true;
  each_stretch(message, [&](std::byte* storage, uint64_t count) {
    if (first == nullptr) first = end = storage;
    is_one = is_one && storage == end;
    end = storage + count * dtype_bytes(message.message.dtype);
  });
  return is_one ? first : nullptr;
}

using To = MessageCopies::To;

// All gradients behind each other in the message's copy, or back.
Status copy(MessageRun& message, To to) {
  std::byte* at = message.send.data();
  MessageCopies copies(message, to);
  each_stretch(message, [&](std::byte* storage, uint64_t count) {
    copies.add(at, storage, count);
    at += count * dtype_bytes(message.message.dtype);
  });
  return copies.end();
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
  PENSTOCK_ASSIGN(message.send, message.place->make_scratch(bytes));
  return {};
}

Status send_from_where_it_lies(MessageRun& message) {
  std::byte* const storage = one_stretch(message);
  message.message.receive = storage != nullptr ? storage : message.send.data();
  message.message.send = message.message.receive;
  return storage != nullptr ? Status() : copy(message, To::message);
}

Status receive_where_it_lies(MessageRun& message) {
  const bool was_copied =
      message.send.bytes() != 0 && message.message.receive == message.send.data();
  return was_copied ? copy(message, To::storage) : Status();
}

}  // namespace penstock

#include "core/bucket/plain.hpp"

#include "core/bucket/copies.hpp"

namespace penstock {
namespace {

// Calls body(storage, elements) for each gradient with elements.
template <typename Body>
void each_stretch(const MessageRun& message, const Body& body) {
  for (const size_t position : message.items) {
    const ItemRun& item = message.coding->items[position];
    if (item.range.numel != 0)
      body(static_cast<std::byte*>(item.for_compressor.grad.data), item.range.numel);
  }
}

// The address of the first gradient, if each gradient begins where the last one ends; else null.
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

// Copies all gradients one after another into the message's copy, or back.
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

Status PlainMessage::make_room(uint32_t) {
  uint64_t count = 0;
  for (const size_t position : items) count += coding->items[position].range.numel;
  message.count = count;
  if (items.size() == 1) return {};
  PENSTOCK_ASSIGN(send, place->make_scratch(count * dtype_bytes(message.dtype)));
  return {};
}

Status PlainMessage::before_encode(uint32_t) {
  std::byte* const storage = one_stretch(*this);
  message.receive = storage != nullptr ? storage : send.data();
  message.send = message.receive;
  return storage != nullptr ? Status() : copy(*this, To::message);
}

Status PlainMessage::before_decode() {
  const bool was_copied = send.bytes() != 0 && message.receive == send.data();
  return was_copied ? copy(*this, To::storage) : Status();
}

}  // namespace penstock

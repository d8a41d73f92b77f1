#include "core/bucket/dense.hpp"

#include "core/bucket/announcement.hpp"
#include "core/bucket/copies.hpp"
#include "core/bucket/flag.hpp"
#include "core/bucket/means.hpp"
#include "core/bucket/messages.hpp"
#include "core/tensor/elements.hpp"

#include <penstock/mean.h>

#include <algorithm>
#include <map>

namespace penstock {
namespace {

constexpr float kVoid = 1, kVoidAndNotTaken = 2;

using ShareKind = std::pair<uint32_t, bool>;  // the key of Coding::shares

// The values that ranks of a host add over one link: the items of each owner.
struct Shares {
  uint32_t dtype = PENSTOCK_FLOAT32;
  Link* link = nullptr;
  WorkPlace* place = nullptr;
  std::vector<std::vector<size_t>> by_owner;
};

ShareKind share_kind(const MessageRun& message) {
  return {message.message.dtype, message.is_announced()};
}

std::byte* place_in_piece(const ItemRun& item) {
  return static_cast<std::byte*>(item.of->values) +
         (item.range.first - item.of->piece.first) * dtype_bytes(item.dtype);
}

// Calls body(item, elements that lie before it) for all items, owner after owner.
template <typename Body>
void each_share(MessageRun& message, const Body& body) {
  for (uint32_t owner = 0; owner < message.by_owner.size(); ++owner) {
    uint64_t offset = message.send_offsets[owner];
    for (const size_t position : message.by_owner[owner]) {
      ItemRun& item = message.coding->items[position];
      if (item.range.numel != 0) body(item, offset);  // an empty item has no storage
      offset += item.range.numel;
    }
  }
}

using To = MessageCopies::To;

Status copy_shares(MessageRun& message, std::byte* shares, To to) {
  MessageCopies copies(message, to);
  each_share(message, [&](const ItemRun& item, uint64_t offset) {
    const uint64_t element = dtype_bytes(item.dtype);
    copies.add(shares + offset * element, place_in_piece(item), item.range.numel);
  });
  return copies.end();
}

// The index of the flag in an owner's share.
uint64_t flag_of(const MessageRun& message, uint32_t owner) {
  return message.send_offsets[owner] + message.send_counts[owner] - 1;
}

// Sets the counts and offsets of the shares; ranks after the last owner have no share. Returns the
// number of elements.
uint64_t lay_out_shares(MessageRun& message, uint32_t n_owners) {
  uint64_t offset = 0;
  for (uint32_t rank = 0; rank < message.group_size(); ++rank) {
    uint64_t count = 0;
    if (rank < n_owners) {
      for (const size_t position : message.by_owner[rank])
        count += message.coding->items[position].range.numel;
      if (!message.is_announced()) ++count;  // the flag
    }
    message.send_counts.push_back(count);
    message.send_offsets.push_back(offset);
    offset += count;
  }
  message.receive_counts = message.send_counts;
  message.receive_offsets = message.send_offsets;
  return offset;
}

// Makes the buffer of the share of this rank: the share arrives there, is exchanged, and leaves
// from there.
Result<std::byte*> make_share(Coding& coding, const MessageRun& scattered, uint64_t element) {
  const uint32_t me = scattered.group_rank();
  const uint64_t bytes = std::max<uint64_t>(scattered.send_counts[me], 1) * element;
  PENSTOCK_ASSIGN(WorkMemory memory, memory_of(scattered, bytes));
  std::byte* const share = memory.data();
  coding.shares[share_kind(scattered)] = std::move(memory);
  if (me >= scattered.by_owner.size()) return share;
  uint64_t offset = 0;
  for (const size_t position : scattered.by_owner[me]) {
    ItemRun& item = coding.items[position];
    item.share = share + offset * element;
    offset += item.range.numel;
  }
  return share;
}

Status lay_out_shares_of(BucketRun& bucket, Leg& scatter, Leg* spread, const Shares& shares) {
  Coding& coding = *scatter.coding;
  const uint32_t dtype = shares.dtype;
  auto out =
      make_message<ScatteredMessage>(bucket, coding, *shares.link, PENSTOCK_REDUCE_SCATTER, dtype);
  out->place = shares.place;
  out->by_owner = shares.by_owner;
  if (averages_host(*out)) out->message.reduction = PENSTOCK_REDUCE_MEAN;
  const uint64_t count = lay_out_shares(*out, bucket.context.owners_per_host);
  const uint64_t element = dtype_bytes(dtype);
  PENSTOCK_ASSIGN(out->send, memory_of(*out, count * element));
  PENSTOCK_ASSIGN(std::byte * share, make_share(coding, *out, element));
  penstock_message& sum = out->message;
  sum.send = out->send.data();
  sum.count = count;
  sum.receive = share;
  sum.receive_counts = out->receive_counts.data();
  if (spread != nullptr) {
    auto back =
        make_message<SpreadMessage>(bucket, coding, *shares.link, PENSTOCK_ALL_GATHER, dtype);
    back->place = shares.place;
    back->by_owner = shares.by_owner;
    lay_out_shares(*back, bucket.context.owners_per_host);
    penstock_message& results = back->message;
    results.send = share;
    results.count = back->send_counts[back->group_rank()];
    results.receive = out->send.data();
    results.receive_counts = back->receive_counts.data();
    results.receive_offsets = back->receive_offsets.data();
    results.flags |= PENSTOCK_MESSAGE_EXACT_COUNTS;
    spread->messages[0].push_back(std::move(back));
  }
  scatter.messages[0].push_back(std::move(out));
  return {};
}

}  // namespace

Status lay_out_scattered(BucketRun& bucket, Leg& scatter, Leg* spread) {
  std::map<ShareKind, Shares> by_kind;
  for (size_t i = 0; i < scatter.coding->items.size(); ++i) {
    const ItemRun& item = scatter.coding->items[i];
    Link& link = item.place().link_of_values(bucket.context.at(scatter.kind.level));
    Shares& shares = by_kind[{item.dtype, link.is_announced}];
    shares.dtype = item.dtype;
    shares.link = &link;
    shares.place = &item.place();
    shares.by_owner.resize(bucket.context.owners_per_host);
    shares.by_owner[item.owner].push_back(i);
  }
  for (const auto& [kind, shares] : by_kind)
    PENSTOCK_TRY(lay_out_shares_of(bucket, scatter, spread, shares));
  lay_out_announcement(bucket, scatter, 0);
  if (spread != nullptr) lay_out_announcement(bucket, *spread, 0);
  return {};
}

// ---- in a step ----

Status ScatteredMessage::pack(uint32_t) {
  PENSTOCK_TRY(copy_shares(*this, send.data(), To::message));
  if (is_announced()) return {};
  for (uint32_t owner = 0; owner < by_owner.size(); ++owner)
    write_flag(message.dtype, send.data(), flag_of(*this, owner), bucket->nonfinite ? 1 : 0);
  return {};
}

Status ScatteredMessage::read(const Leg&, uint32_t) {
  PENSTOCK_TRY(weigh_shares(*bucket, *this));
  if (is_announced() || group_rank() >= by_owner.size()) return {};
  const uint64_t own_count = send_counts[group_rank()];
  if (flag_at(message.dtype, message.receive, own_count - 1) != 0) coding->nonfinite = true;
  return {};
}

Status SpreadMessage::prepare(Leg&, uint32_t) {
  if (group_rank() >= by_owner.size()) return {};
  const float flag = !bucket->is_void ? 0 : coding->compensated ? kVoid : kVoidAndNotTaken;
  const WorkMemory& share = coding->shares.at(share_kind(*this));
  write_flag(message.dtype, share.data(), message.count - 1, flag);
  return {};
}

Status SpreadMessage::read(const Leg&, uint32_t) {
  auto* const arrived = static_cast<std::byte*>(message.receive);
  const size_t n_flags = is_announced() ? 0 : by_owner.size();
  for (uint32_t owner = 0; owner < n_flags; ++owner) {
    const float flag = flag_at(message.dtype, arrived, flag_of(*this, owner));
    if (flag != 0) bucket->is_void = true;
    if (flag == kVoidAndNotTaken) coding->compensated = false;
  }
  return bucket->is_void ? Status() : copy_shares(*this, arrived, To::storage);
}

}  // namespace penstock

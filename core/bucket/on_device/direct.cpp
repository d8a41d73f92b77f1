#include "core/bucket/on_device/direct.hpp"

#include "core/bucket/dense.hpp"
#include "core/bucket/exchange.hpp"
#include "core/bucket/layout.hpp"
#include "core/bucket/wire.hpp"
#include "core/comm/channel.hpp"
#include "core/plugin/instances.hpp"

#include <kernels/message.hpp>

#include <algorithm>

namespace penstock {
namespace {

bool carries(const Channel& channel, uint32_t pattern) {
  return (device_patterns(channel.traits) & PENSTOCK_PATTERN_BIT(pattern)) != 0;
}

// Whether a payload is indices and values and nothing else. The values may have any type, because
// no host inspects the values.
bool are_pairs(const RoundNeed& need) {
  return need.combine == PENSTOCK_COMBINE_GATHER && need.sections.size() == 2 &&
         need.sections[0].role == PENSTOCK_ROLE_INDICES &&
         need.sections[0].dtype == PENSTOCK_UINT32 && need.sections[1].role == PENSTOCK_ROLE_VALUES;
}

// Calls body(number, rank, item, payload) for the pairs of other ranks.
template <typename Body>
void each_foreign(const MessageRun& message, uint32_t round, const Body& body) {
  uint64_t number = 0;
  for (uint32_t rank = 0; rank < message.group_size(); ++rank)
    for (const size_t position : message.items) {
      ItemRun& item = message.coding->items[position];
      PayloadStorage& payload = item.arrival(round, rank);
      const bool is_looked_at =
          rank != message.group_rank() && payload.c()->kind == PENSTOCK_PAYLOAD_SPARSE;
      if (is_looked_at) body(number, rank, item, payload);
      ++number;
    }
}

}  // namespace

bool goes_directly(const Coding& coding, const ItemRun& item, uint32_t round) {
  const Channel* channel = coding.links->direct.channel;
  if (channel == nullptr || !is_on_device(item.place()) || item.rounds.size() <= round)
    return false;
  const RoundNeed& need = item.rounds[round];
  const bool has_owner = coding.to_owners || coding.of_sums;
  if (has_owner && need.combine != PENSTOCK_COMBINE_SUM) return false;
  if (need.combine != PENSTOCK_COMBINE_SUM)
    return are_pairs(need) && carries(*channel, PENSTOCK_ALL_GATHER);
  return !need.sections.empty() && carries(*channel, PENSTOCK_ALL_REDUCE) &&
         (channel->traits.dtypes & PENSTOCK_DTYPE_BIT(need.sections.front().dtype)) != 0;
}

bool sends_directly(const BucketRun& bucket, const Coding& coding, const ItemRun& item) {
  if (bucket.legs.front().kind.is_dense() && is_on_device(item.place())) return true;
  for (uint32_t round = 0; round < item.rounds.size(); ++round)
    if (goes_directly(coding, item, round)) return true;
  return false;
}

Status lay_out_verdicts(DevicePart& part, BucketRun& bucket) {
  uint64_t most = 0;
  bucket.each_message([&](uint32_t, uint32_t, const MessageRun& message) {
    if (message.is_announced() && !message.joins())
      most = std::max(most, uint64_t{message.group_size()} * message.items.size());
  });
  if (most == 0) return {};
  part.lists.reserve(most);
  return part.wrong_indices.make(bucket.context.on_device.residents->numbers, most);
}

bool takes_finished(const Leg& leg, uint32_t round) {
  for (const auto& message : leg.messages[round])  // all messages use one channel
    if (message->is_announced())
      return (message->link->channel->traits.flags & PENSTOCK_COLLECTIVE_TAKES_FINISHED) != 0;
  return false;
}

bool Pack::runs(const BucketRun& bucket) const {
  return Stage::runs(bucket) && Ticket::is_taken(leg_);
}

Status Pack::begin(BucketRun& bucket) {
  for (auto& message : leg_.messages[round_])
    if (message->is_announced()) {
      message->message.exec = &message->place->exec();
      PENSTOCK_TRY(message->pack(round_));
    }
  if (!takes_finished(leg_, round_)) return {};
  // Recorded after the data to send, and after all earlier work on the receive buffers.
  return part_of(bucket).copied.record(bucket.context.on_device.residents->stream().handle());
}

Status EchoDirect::begin(BucketRun& bucket) {
  const Stream& stream = bucket.context.on_device.residents->stream();
  for (auto& message : leg_.messages[round_]) {
    if (!message->is_announced()) continue;
    std::byte* const arrived = message->receive.data();
    if (message->joins()) {
      PENSTOCK_TRY(stream.copy_on_device(arrived, message->send.data(), message->receive.bytes()));
      continue;
    }
    for (const uint64_t offset : message->receive_offsets)
      PENSTOCK_TRY(
          stream.copy_on_device(arrived + offset, message->message.send, message->message.count));
  }
  return {};
}

Status CheckIndices::begin(BucketRun& bucket) {
  const MessageRun& message = *leg_.announcements[round_].gathered;
  DevicePart& part = part_of(bucket);
  const Stream& stream = bucket.context.on_device.residents->stream();
  FoundNumbers<uint32_t>& found = part.wrong_indices;
  part.lists.clear();
  each_foreign(message, round_,
               [&](uint64_t number, uint32_t, const ItemRun& item, PayloadStorage& payload) {
                 const penstock_section& indices = payload.section(0);
                 part.lists.push_back({static_cast<const uint32_t*>(indices.data), indices.count,
                                       item.range.numel, found.place(number)});
               });
  if (part.lists.empty()) return {};
  PENSTOCK_TRY(found.clear(stream));
  PENSTOCK_TRY(stream.check_indices(part.lists));
  PENSTOCK_TRY(found.bring(stream));
  return part.copied.record(stream.handle());
}

Status CheckIndices::end(BucketRun& bucket) {
  if (!waits(bucket)) return {};
  const MessageRun& message = *leg_.announcements[round_].gathered;
  Status status;
  each_foreign(message, round_,
               [&](uint64_t number, uint32_t rank, const ItemRun& item, PayloadStorage&) {
                 if (!status.ok() || part_of(bucket).wrong_indices[number] == 0) return;
                 status = bad_payload(bucket, message, rank, &item,
                                      fmt::format("has indices that do not ascend or are not below "
                                                  "{}, expected ascending ones below it",
                                                  item.range.numel));
               });
  return status;
}

}  // namespace penstock

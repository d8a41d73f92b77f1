#include "core/bucket/sums.hpp"

#include "core/bucket/flag.hpp"
#include "core/bucket/plain.hpp"
#include "core/tensor/elements.hpp"

#include <penstock/mean.h>

#include <algorithm>
#include <cstring>

namespace penstock {
namespace {

// Whether the sent payloads must outlive the exchange: an in-place sum would overwrite payloads
// that may be given back.
bool keeps_own(const Coding& coding, const std::vector<size_t>& items, uint32_t round) {
  return std::any_of(items.begin(), items.end(), [&](size_t position) {
    const ItemRun& item = coding.items[position];
    return (item.keeps || item.records_decoded) && round + 1 == item.rounds.size();
  });
}

}  // namespace

uint64_t summed_elements(const Coding& coding, const std::vector<size_t>& items, uint32_t round) {
  uint64_t count = 0;
  for (size_t position : items)
    for (const SectionNeed& section : coding.items[position].rounds[round].sections)
      count += section.capacity;
  return count;
}

void SumMessage::choose_flag() {
  const bool adds =
      message.reduction == PENSTOCK_REDUCE_SUM || message.reduction == PENSTOCK_REDUCE_MEAN;
  has_flag = !is_announced() && adds && is_floating(message.dtype);
  is_mean = message.reduction == PENSTOCK_REDUCE_MEAN;
}

void SumMessage::point_sent(const std::vector<size_t>& positions, uint32_t round, std::byte* at) {
  for (const size_t position : positions) {
    ItemRun& item = coding->items[position];
    for (size_t s = 0; s < item.rounds[round].sections.size(); ++s) {
      item.place().point(item.own[round].section(s), send, at);
      at += item.rounds[round].sections[s].bytes();
    }
  }
}

void SumMessage::point_received(const std::vector<size_t>& positions, uint32_t round,
                                const WorkMemory& arrived, std::byte* at) {
  for (const size_t position : positions) {
    ItemRun& item = coding->items[position];
    for (size_t s = 0; s < item.rounds[round].sections.size(); ++s) {
      const SectionNeed& need = item.rounds[round].sections[s];
      penstock_section& section = item.received[round][0].section(s);
      item.place().point(section, arrived, at);
      section.count = need.capacity;
      at += need.bytes();
    }
  }
}

Status SumMessage::make_room(uint32_t round) {
  uint64_t count = summed_elements(*coding, items, round);
  choose_flag();
  flag_index = count;
  if (has_flag) ++count;
  const uint64_t bytes = count * dtype_bytes(message.dtype);
  PENSTOCK_ASSIGN(send, memory_of(*this, bytes));
  if (keeps_own(*coding, items, round)) {
    PENSTOCK_ASSIGN(receive, memory_of(*this, bytes));
  }
  message.send = send.data();
  message.receive = receive.bytes() != 0 ? receive.data() : send.data();
  message.count = count;
  point_sent(items, round, send.data());
  const WorkMemory& arrived = receive.bytes() != 0 ? receive : send;
  point_received(items, round, arrived, arrived.data());
  return {};
}

Status lay_out_sum(BucketRun& bucket, Leg& leg, uint32_t round, const Summed& how,
                   std::vector<size_t> items) {
  Coding& coding = *leg.coding;
  std::unique_ptr<SumMessage> message;
  if (coding.items[items.front()].passes_through)
    message = std::make_unique<PlainMessage>();
  else
    message = std::make_unique<SumMessage>();
  begin_message(*message, bucket, coding, link_of(coding, items, round), PENSTOCK_ALL_REDUCE,
                how.dtype);
  message->message.reduction = how.reduction;
  take_items(*message, std::move(items));
  PENSTOCK_TRY(message->make_room(round));
  leg.messages[round].push_back(std::move(message));
  return {};
}

// Makes one sum on two legs: a reduce-scatter, then each rank passes its share on to all ranks.
Status lay_out_halves(BucketRun& bucket, Leg& begins, Leg& ends, uint32_t round, const Summed& how,
                      std::vector<size_t> items) {
  Coding& coding = *begins.coding;
  Link& link = coding.links->transport;
  const uint32_t dtype = how.dtype;
  auto scatter = make_message<SumMessage>(bucket, coding, link, PENSTOCK_REDUCE_SCATTER, dtype);
  auto collect = make_message<SharesMessage>(bucket, coding, link, PENSTOCK_ALL_GATHER, dtype);
  scatter->message.reduction = how.reduction;
  take_items(*scatter, std::move(items));
  PENSTOCK_TRY(scatter->make_room(round));
  const uint64_t count = scatter->message.count;
  const uint32_t world = scatter->group_size();
  uint64_t offset = 0;
  for (uint32_t rank = 0; rank < world; ++rank) {
    const uint64_t share = count / world + (rank < count % world ? 1 : 0);
    scatter->receive_counts.push_back(share);
    collect->receive_counts.push_back(share);
    collect->receive_offsets.push_back(offset);
    offset += share;
  }
  const uint64_t own_share = scatter->receive_counts[scatter->group_rank()];
  collect->send = Buffer(own_share * dtype_bytes(dtype));  // where the reduced share arrives
  collect->message.send = collect->send.data();
  collect->message.count = own_share;
  collect->message.receive = scatter->message.receive;
  collect->message.receive_counts = collect->receive_counts.data();
  collect->message.receive_offsets = collect->receive_offsets.data();
  collect->message.flags |= PENSTOCK_MESSAGE_EXACT_COUNTS;
  scatter->message.receive = collect->send.data();
  scatter->message.receive_counts = scatter->receive_counts.data();
  take_items(*collect, scatter->items);
  collect->has_flag = scatter->has_flag;
  collect->flag_index = scatter->flag_index;
  collect->is_mean = scatter->is_mean;
  begins.messages[round].push_back(std::move(scatter));
  ends.messages[round].push_back(std::move(collect));
  return {};
}

std::unique_ptr<FlagMessage> make_flag(BucketRun& bucket, Coding& coding, uint64_t n_numbers) {
  auto message = make_message<FlagMessage>(bucket, coding, coding.links->transport,
                                           PENSTOCK_ALL_REDUCE, PENSTOCK_FLOAT32);
  message->has_flag = true;
  message->flag_index = n_numbers;
  message->send = Buffer((n_numbers + 1) * sizeof(float));
  message->message.send = message->send.data();
  message->message.receive = message->send.data();
  message->message.count = n_numbers + 1;
  return message;
}

// ---- in a step ----

Status SumMessage::prepare(Leg&, uint32_t) {
  if (coding->nonfinite) std::memset(send.data(), 0, send.bytes());
  if (has_flag)
    write_flag(message.dtype, send.data(), flag_index, summed_flag(*bucket, coding->nonfinite));
  return {};
}

Status SumMessage::read_flag(const void* arrived) const {
  if (!has_flag) return {};
  return take_summed_flag(*bucket, flag_at(message.dtype, arrived, flag_index), is_mean);
}

Status SumMessage::read(const Leg& leg, uint32_t round) {
  if (!leg.kind.decodes) return {};  // this is a part of the sum; a later leg reads it
  PENSTOCK_TRY(read_flag(message.receive));
  take_kinds(items, round);
  if (!is_announced() && !may_go_on(round)) bucket->is_void = true;
  return {};
}

bool SumMessage::may_go_on(uint32_t round) const {
  const auto* at = static_cast<const std::byte*>(message.receive);
  for (const size_t position : items) {
    const ItemRun& item = coding->items[position];
    const bool goes_on = round + 1 < item.rounds.size();
    for (const SectionNeed& section : item.rounds[round].sections) {
      if (goes_on && !all_finite(section.dtype, at, section.capacity)) return false;
      at += section.bytes();
    }
  }
  return true;
}

void SumMessage::take_kinds(const std::vector<size_t>& positions, uint32_t round) {
  for (const size_t position : positions) {
    ItemRun& item = coding->items[position];
    const uint32_t kind = item.own[round].c()->kind;
    item.received[round][0].c()->kind =
        kind == PENSTOCK_PAYLOAD_ABSENT ? uint32_t{PENSTOCK_PAYLOAD_CODED} : kind;
  }
}

Status FlagMessage::read(const Leg&, uint32_t) {
  return take();
}

}  // namespace penstock

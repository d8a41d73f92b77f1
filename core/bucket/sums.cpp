#include "core/bucket/sums.hpp"

#include "core/bucket/flag.hpp"
#include "core/bucket/plain.hpp"
#include "core/tensor/elements.hpp"

#include <penstock/mean.h>

#include <algorithm>
#include <cstring>

namespace penstock {
namespace {

// The elements all sections of `items` take in a summed message.
uint64_t summed_elements(const Coding& coding, const std::vector<size_t>& items, uint32_t round) {
  uint64_t count = 0;
  for (size_t position : items)
    for (const SectionNeed& section : coding.items[position].rounds[round].sections)
      count += section.capacity;
  return count;
}

// Whether what is sent must outlive the exchange: an in-place sum would overwrite what may have to
// be given back.
bool keeps_own(const Coding& coding, const std::vector<size_t>& items, uint32_t round) {
  return std::any_of(items.begin(), items.end(), [&](size_t position) {
    const ItemRun& item = coding.items[position];
    return (item.keeps || item.records_decoded) && round + 1 == item.rounds.size();
  });
}

void point_summed(Coding& coding, MessageRun& message, uint32_t round) {
  const uint64_t element = dtype_bytes(message.message.dtype);
  const WorkMemory& arrived = message.receive.bytes() != 0 ? message.receive : message.send;
  uint64_t at = 0;
  for (size_t position : message.items) {
    ItemRun& item = coding.items[position];
    for (size_t s = 0; s < item.rounds[round].sections.size(); ++s) {
      const uint64_t capacity = item.rounds[round].sections[s].capacity;
      const WorkPlace& place = item.place();
      place.point(item.own[round].section(s), message.send, message.send.data() + at);
      place.point(item.received[round][0].section(s), arrived, arrived.data() + at);
      item.received[round][0].section(s).count = capacity;
      at += capacity * element;
    }
  }
}

// Buffers of a sum; what is sent must stay where it may have to be given back.
Status make_sum_buffers(Coding& coding, MessageRun& message, uint32_t round) {
  uint64_t count = summed_elements(coding, message.items, round);
  const bool adds = message.message.reduction == PENSTOCK_REDUCE_SUM ||
                    message.message.reduction == PENSTOCK_REDUCE_MEAN;
  message.has_flag = !message.is_announced() && adds && is_floating(message.message.dtype);
  message.is_mean = message.message.reduction == PENSTOCK_REDUCE_MEAN;
  message.flag_index = count;
  if (message.has_flag) ++count;
  const uint64_t bytes = count * dtype_bytes(message.message.dtype);
  PENSTOCK_ASSIGN(message.send, memory_of(message, bytes));
  if (keeps_own(coding, message.items, round)) {
    PENSTOCK_ASSIGN(message.receive, memory_of(message, bytes));
  }
  message.message.send = message.send.data();
  message.message.receive =
      message.receive.bytes() != 0 ? message.receive.data() : message.send.data();
  message.message.count = count;
  point_summed(coding, message, round);
  return {};
}

}  // namespace

Status lay_out_sum(BucketRun& bucket, Leg& leg, uint32_t round, const Summed& how,
                   std::vector<size_t> items) {
  Coding& coding = *leg.coding;
  Link& link = link_of(coding, items, round);
  if (coding.items[items.front()].passes_through) {
    auto message = make_message<PlainMessage>(bucket, coding, link, PENSTOCK_ALL_REDUCE, how.dtype);
    message->message.reduction = how.reduction;
    take_items(*message, std::move(items));
    PENSTOCK_TRY(message->make_room());
    leg.messages[round].push_back(std::move(message));
    return {};
  }
  auto message = make_message<SumMessage>(bucket, coding, link, PENSTOCK_ALL_REDUCE, how.dtype);
  message->message.reduction = how.reduction;
  take_items(*message, std::move(items));
  PENSTOCK_TRY(make_sum_buffers(coding, *message, round));
  leg.messages[round].push_back(std::move(message));
  return {};
}

// One sum in two legs: reduced and scattered, then what this rank holds passed on to all.
Status lay_out_halves(BucketRun& bucket, Leg& begins, Leg& ends, uint32_t round, const Summed& how,
                      std::vector<size_t> items) {
  Coding& coding = *begins.coding;
  Link& link = coding.links->transport;
  const uint32_t dtype = how.dtype;
  auto scatter = make_message<SumMessage>(bucket, coding, link, PENSTOCK_REDUCE_SCATTER, dtype);
  auto collect = make_message<SharesMessage>(bucket, coding, link, PENSTOCK_ALL_GATHER, dtype);
  scatter->message.reduction = how.reduction;
  take_items(*scatter, std::move(items));
  PENSTOCK_TRY(make_sum_buffers(coding, *scatter, round));
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
  if (!leg.kind.decodes) return {};  // a part of the sum, for a leg to come
  PENSTOCK_TRY(read_flag(message.receive));
  for (const size_t position : items) {
    ItemRun& item = coding->items[position];
    const uint32_t kind = item.own[round].c()->kind;
    item.received[round][0].c()->kind =
        kind == PENSTOCK_PAYLOAD_ABSENT ? uint32_t{PENSTOCK_PAYLOAD_CODED} : kind;
  }
  return {};
}

Status FlagMessage::read(const Leg&, uint32_t) {
  return take();
}

void write_flag(uint32_t dtype, void* elements, uint64_t index, float flag) {
  auto* bytes = static_cast<std::byte*>(elements);
  from_float32(dtype, &flag, bytes + index * dtype_bytes(dtype), 1);
}

float flag_at(uint32_t dtype, const void* elements, uint64_t index) {
  float flag = 0;
  to_float32(dtype, static_cast<const std::byte*>(elements) + index * dtype_bytes(dtype), &flag, 1);
  return flag;
}

}  // namespace penstock

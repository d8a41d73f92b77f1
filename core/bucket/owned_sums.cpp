#include "core/bucket/owned_sums.hpp"

#include "core/bucket/flag.hpp"

#include <algorithm>
#include <cstring>

namespace penstock {

Status OwnedSumMessage::make_room(uint32_t round) {
  choose_flag();
  const uint64_t element = dtype_bytes(message.dtype);
  uint64_t count = 0;
  for (const std::vector<size_t>& owned : by_owner) {
    send_offsets.push_back(count);
    send_counts.push_back(summed_elements(*coding, owned, round) + (has_flag ? 1 : 0));
    count += send_counts.back();
  }
  receive_counts = send_counts;
  const uint64_t own_count = send_counts[group_rank()];
  flag_index = own_count - 1;
  PENSTOCK_ASSIGN(send, memory_of(*this, count * element));
  PENSTOCK_ASSIGN(receive, memory_of(*this, std::max<uint64_t>(own_count, 1) * element));
  message.send = send.data();
  message.receive = receive.data();
  message.count = count;
  message.receive_counts = receive_counts.data();
  for (uint32_t rank = 0; rank < by_owner.size(); ++rank)
    point_sent(by_owner[rank], round, send.data() + send_offsets[rank] * element);
  point_received(by_owner[group_rank()], round, receive, receive.data());
  return {};
}

Status lay_out_owned_sum(BucketRun& bucket, Leg& leg, uint32_t round, const Summed& how,
                         std::vector<size_t> items) {
  Coding& coding = *leg.coding;
  auto message = make_message<OwnedSumMessage>(bucket, coding, link_of(coding, items, round),
                                               PENSTOCK_REDUCE_SCATTER, how.dtype);
  message->message.reduction = how.reduction;
  message->by_owner.resize(message->group_size());
  for (const size_t position : items)
    message->by_owner[coding.items[position].owner].push_back(position);
  take_items(*message, std::move(items));
  PENSTOCK_TRY(message->make_room(round));
  leg.messages[round].push_back(std::move(message));
  return {};
}

// ---- in a step ----

Status OwnedSumMessage::prepare(Leg&, uint32_t) {
  if (coding->nonfinite) std::memset(send.data(), 0, send.bytes());
  if (!has_flag) return {};
  const float flag = summed_flag(*bucket, coding->nonfinite);
  for (size_t rank = 0; rank < send_counts.size(); ++rank)
    write_flag(message.dtype, send.data(), send_offsets[rank] + send_counts[rank] - 1, flag);
  return {};
}

void OwnedSumMessage::echo(uint32_t) {
  const uint64_t element = dtype_bytes(message.dtype);
  std::memcpy(receive.data(), send.data() + send_offsets[group_rank()] * element,
              receive_counts[group_rank()] * element);
}

Status OwnedSumMessage::read(const Leg&, uint32_t round) {
  PENSTOCK_TRY(read_flag(message.receive));
  take_kinds(by_owner[group_rank()], round);
  return {};
}

}  // namespace penstock

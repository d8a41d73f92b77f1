#include "core/bucket/direct.hpp"

#include "core/bucket/calls.hpp"
#include "core/bucket/dense.hpp"
#include "core/bucket/device.hpp"
#include "core/bucket/layout.hpp"
#include "core/bucket/watch.hpp"
#include "core/bucket/wire.hpp"
#include "core/plugin/instances.hpp"

#include <algorithm>

namespace penstock {
namespace {

constexpr uint64_t kTurnBytes = sizeof(uint64_t);

bool carries(const Channel& channel, uint32_t pattern) {
  return (device_patterns(channel.traits) & PENSTOCK_PATTERN_BIT(pattern)) != 0;
}

// Indices and values, of any type and nothing beside: no host looks at values.
bool are_pairs(const RoundNeed& need) {
  return need.combine == PENSTOCK_COMBINE_GATHER && need.sections.size() == 2 &&
         need.sections[0].role == PENSTOCK_ROLE_INDICES &&
         need.sections[0].dtype == PENSTOCK_UINT32 && need.sections[1].role == PENSTOCK_ROLE_VALUES;
}

// Then every part is as large as it may be, whatever has been sent.
bool is_exact(const MessageRun& message) {
  return message.packed.bytes() == 0;
}

// Where sections of a part lie behind each other, at multiples of 8 bytes: in places for as many as
// may come where that is always so many, else for as many as have come.
class Places {
 public:
  Places(std::byte* part, bool exact) : at_(part), exact_(exact) {}
  std::byte* next(const penstock_section& section) {
    std::byte* const place = at_;
    const uint64_t count = exact_ ? section.capacity : section.count;
    at_ += round_up(count * dtype_bytes(section.dtype));
    return place;
  }
  std::byte* end() const { return at_; }

 private:
  std::byte* at_;
  bool exact_;
};

// Sections move together on the device, into memory of their own: what may have to be given back
// stays where it is.
Status pack(const Stream& stream, MessageRun& message, uint32_t round) {
  Places places(message.packed.data(), false);
  message.copies.clear();
  for (const size_t position : message.items) {
    PayloadStorage& own = message.coding->items[position].own[round];
    for (size_t s = 0; s < own.size(); ++s) {
      const penstock_section& section = own.section(s);
      // Whole words: there is room behind a section for what its last one has too much.
      const uint64_t bytes = section.count * dtype_bytes(section.dtype);
      constexpr uint32_t kWord = sizeof(uint32_t);
      message.copies.push_back(
          {section.data, places.next(section), (bytes + kWord - 1) / kWord, kWord, 0});
    }
  }
  PENSTOCK_TRY(stream.copy_many(message.copies));
  message.message.send = message.packed.data();
  message.message.count = static_cast<uint64_t>(places.end() - message.packed.data());
  return {};
}

// Points a message at what it sends in this round.
Status prepare(BucketRun& bucket, MessageRun& message, uint32_t round) {
  message.message.exec = &bucket.context.device_exec;
  if (message.kind == MessageRun::Kind::scattered) return pack_scattered(bucket, message);
  if (message.kind != MessageRun::Kind::gather) return {};
  if (!is_exact(message)) {
    Stopwatch* const watch = message.coding->watch(round, &RoundWatches::packing);
    PENSTOCK_TRY(begin_watch(bucket, watch));
    PENSTOCK_TRY(pack(bucket.context.residents->stream(), message, round));
    return end_watch(bucket, watch);
  }
  message.message.send = message.send.data();
  message.message.count = message.send.bytes();
  return {};
}

// What a rank says of all that it sends in a leg.
uint32_t flags_of(const BucketRun& bucket, const Leg& leg) {
  const Coding& coding = *leg.coding;
  if (!leg.kind.is_dense()) return coding.nonfinite ? kWireNonfinite : 0;
  if (!leg.tells) return bucket.nonfinite ? kWireNonfinite : 0;
  if (!bucket.is_void) return 0;
  return kWireNonfinite | (coding.compensated ? 0 : kWireNotTaken);
}

void take_flags(BucketRun& bucket, const Leg& leg, uint32_t flags) {
  const bool is_of_sums = leg.kind.is_dense() && !leg.tells;
  if ((flags & kWireNonfinite) != 0) (is_of_sums ? leg.coding->nonfinite : bucket.is_void) = true;
  if ((flags & kWireNotTaken) != 0) leg.coding->compensated = false;
}

// One rank's part of the headers; then where its payloads will lie.
Status read_part(BucketRun& bucket, Leg& leg, uint32_t round, uint32_t rank) {
  const Prelude& prelude = leg.preludes[round];
  const MessageRun& header = *prelude.header;
  HeaderReader reader(header, header.receive.data() + rank * header.message.count);
  const uint32_t flags = reader.flags();
  PENSTOCK_TRY(check_past(bucket, header, rank, flags));
  take_flags(bucket, leg, flags);
  if (prelude.gathered == nullptr) return {};
  MessageRun& message = *prelude.gathered;
  const bool is_own = rank == message.group_rank();
  Places places(message.receive.data() + message.receive_offsets[rank], is_exact(message));
  for (const size_t position : message.items) {
    ItemRun& item = leg.coding->items[position];
    PENSTOCK_TRY(reader.read(bucket, item, round, rank));
    PayloadStorage& payload = item.arrival(round, rank);
    for (size_t s = 0; s < payload.size(); ++s) {
      penstock_section& section = payload.section(s);
      std::byte* const place = places.next(section);
      section.data = is_own ? item.own[round].section(s).data : place;
      section.on_host = nullptr;
    }
  }
  message.receive_counts[rank] =
      static_cast<uint64_t>(places.end() - message.receive.data() - message.receive_offsets[rank]);
  return {};
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
  if (channel == nullptr || !item.is_on_device() || item.rounds.size() <= round) return false;
  const RoundNeed& need = item.rounds[round];
  const bool has_owner = coding.to_owners || coding.alone;
  if (has_owner && need.combine != PENSTOCK_COMBINE_SUM) return false;
  if (need.combine != PENSTOCK_COMBINE_SUM)
    return are_pairs(need) && carries(*channel, PENSTOCK_ALL_GATHER);
  return !need.sections.empty() && carries(*channel, PENSTOCK_ALL_REDUCE) &&
         (channel->traits.dtypes & PENSTOCK_DTYPE_BIT(need.sections.front().dtype)) != 0;
}

bool sends_directly(const BucketRun& bucket, const Coding& coding, const ItemRun& item) {
  if (bucket.legs.front().kind.is_dense() && item.is_on_device()) return true;
  for (uint32_t round = 0; round < item.rounds.size(); ++round)
    if (goes_directly(coding, item, round)) return true;
  return false;
}

void lay_out_prelude(BucketRun& bucket, Leg& leg, uint32_t round) {
  Prelude& prelude = leg.preludes[round];
  for (const auto& message : leg.messages[round]) {
    if (!message->is_direct()) continue;
    ++prelude.n_messages;
    if (message->kind == MessageRun::Kind::gather) prelude.gathered = message.get();
  }
  if (prelude.n_messages == 0) return;
  Coding& coding = *leg.coding;
  Link& link = bucket.context.at(leg.kind.level).transport;
  auto header = make_message(bucket, coding, MessageRun::Kind::header, link, PENSTOCK_ALL_GATHER,
                             PENSTOCK_UINT8);
  const uint64_t bytes = header_bytes(
      coding, prelude.gathered != nullptr ? prelude.gathered->items : std::vector<size_t>(), round);
  const uint32_t size = header->group_size();
  header->send = Buffer(bytes);
  header->receive = Buffer(bytes * size);
  for (uint32_t rank = 0; rank < size; ++rank) {
    header->receive_counts.push_back(bytes);
    header->receive_offsets.push_back(rank * bytes);
  }
  penstock_message& c = header->message;
  c.send = header->send.data();
  c.count = bytes;
  c.receive = header->receive.data();
  c.receive_counts = header->receive_counts.data();
  c.receive_offsets = header->receive_offsets.data();
  c.flags |= PENSTOCK_MESSAGE_EXACT_COUNTS;

  auto turn = make_message(bucket, coding, MessageRun::Kind::turn, link, PENSTOCK_BROADCAST,
                           PENSTOCK_UINT8);
  turn->send = Buffer(kTurnBytes);
  turn->receive = Buffer(kTurnBytes);
  turn->message.send = turn->send.data();
  turn->message.receive = turn->receive.data();
  turn->message.count = kTurnBytes;
  prelude.header = header.get();
  prelude.turn = turn.get();
  // On an ordered channel in the order in which they are sent: the turn waits for all that goes
  // with the header.
  auto& messages = leg.messages[round];
  messages.insert(messages.begin(), std::move(header));
  messages.push_back(std::move(turn));
}

Status lay_out_verdicts(BucketRun& bucket) {
  uint64_t most = 0;
  bucket.each_message([&](uint32_t, uint32_t, const MessageRun& message) {
    if (message.is_direct() && message.kind == MessageRun::Kind::gather)
      most = std::max(most, uint64_t{message.group_size()} * message.items.size());
  });
  if (most == 0) return {};
  DevicePart& part = *bucket.device;
  part.lists.reserve(most);
  return part.wrong_indices.make(bucket.context.residents->numbers, most);
}

void write_header(BucketRun& bucket, Leg& leg, uint32_t round) {
  const Prelude& prelude = leg.preludes[round];
  HeaderWriter writer(prelude.header->send.data());
  writer.flags(wire_word(bucket, flags_of(bucket, leg)));
  if (prelude.gathered == nullptr) return;
  for (const size_t position : prelude.gathered->items)
    writer.item(leg.coding->items[position].own[round]);
}

Status read_headers(BucketRun& bucket, Leg& leg, uint32_t round) {
  for (uint32_t rank = 0; rank < leg.preludes[round].header->group_size(); ++rank)
    PENSTOCK_TRY(read_part(bucket, leg, round, rank));
  return {};
}

bool takes_turn(BucketRun& bucket, Leg& leg, uint32_t round) {
  if (!has_direct(leg, round)) return false;
  const bool has_sum = !leg.kind.is_dense() || leg.tells || !leg.coding->nonfinite;
  if (!has_sum) skip_turn(bucket, leg, round);
  return has_sum;
}

Status prepare_direct(BucketRun& bucket, Leg& leg, uint32_t round) {
  const Stream& stream = bucket.context.residents->stream();
  uint32_t flags = 0;  // all go over one channel
  for (auto& message : leg.messages[round]) {
    if (!message->is_direct()) continue;
    PENSTOCK_TRY(prepare(bucket, *message, round));
    flags = message->link->channel->traits.flags;
  }
  DevicePart& part = *bucket.device;
  part.finishes_sends = (flags & PENSTOCK_COLLECTIVE_TAKES_FINISHED) != 0;
  // Behind what is sent, and behind all that has used what is received into.
  return part.finishes_sends ? part.copied.record(stream.handle()) : Status();
}

Status look_at_indices(BucketRun& bucket, Leg& leg, uint32_t round) {
  const MessageRun* message = leg.preludes[round].gathered;
  if (message == nullptr) return {};
  DevicePart& part = *bucket.device;
  const Stream& stream = bucket.context.residents->stream();
  FoundNumbers<uint32_t>& found = part.wrong_indices;
  part.lists.clear();
  each_foreign(*message, round,
               [&](uint64_t number, uint32_t, const ItemRun& item, PayloadStorage& payload) {
                 const penstock_section& indices = payload.section(0);
                 part.lists.push_back({static_cast<const uint32_t*>(indices.data), indices.count,
                                       item.range.numel, found.place(number)});
               });
  part.brings_verdicts = !part.lists.empty();
  if (!part.brings_verdicts) return {};
  Stopwatch* const watch = leg.coding->watch(round, &RoundWatches::checking);
  PENSTOCK_TRY(begin_watch(bucket, watch));
  PENSTOCK_TRY(found.clear(stream));
  PENSTOCK_TRY(stream.check_indices(part.lists));
  PENSTOCK_TRY(end_watch(bucket, watch));
  PENSTOCK_TRY(found.bring(stream));
  return part.copied.record(stream.handle());
}

Status take_verdicts(BucketRun& bucket, Leg& leg, uint32_t round) {
  const MessageRun* message = leg.preludes[round].gathered;
  if (message == nullptr || !std::exchange(bucket.device->brings_verdicts, false)) return {};
  Status status;
  each_foreign(*message, round,
               [&](uint64_t number, uint32_t rank, const ItemRun& item, PayloadStorage&) {
                 if (!status.ok() || bucket.device->wrong_indices[number] == 0) return;
                 status = bad_payload(bucket, *message, rank, &item,
                                      fmt::format("has indices that do not ascend or are not below "
                                                  "{}, expected ascending ones below it",
                                                  item.range.numel));
               });
  return status;
}

}  // namespace penstock

#include "core/bucket/on_device/fetch.hpp"

#include "core/bucket/coded.hpp"

#include <algorithm>

namespace penstock {
namespace {

// Joins stretches of a message that lie one after another into one copy. The sections of payloads
// mostly do: a next section begins at the end of the last section, or at the next multiple of 8
// bytes. Two stretches are open at a time, because coded indices have a place of their own.
template <typename Copy>
class Stretches {
 public:
  explicit Stretches(const Copy& copy) : copy_(copy) {}

  Status add(std::byte* data, uint64_t bytes) {
    if (bytes == 0) return {};
    if (follows(open_[0], data)) std::swap(open_[0], open_[1]);
    Stretch& last = open_[1];
    if (follows(last, data)) {
      last.bytes = static_cast<uint64_t>(data - last.begin) + bytes;
      return {};
    }
    PENSTOCK_TRY(close(open_[0]));
    open_[0] = std::exchange(open_[1], {data, bytes});
    return {};
  }
  Status flush() {
    if (open_[0].begin > open_[1].begin) std::swap(open_[0], open_[1]);
    if (open_[1].bytes != 0 && follows(open_[0], open_[1].begin))
      PENSTOCK_TRY(add(open_[1].begin, std::exchange(open_[1].bytes, 0)));
    for (Stretch& open : open_) PENSTOCK_TRY(close(open));
    return {};
  }

 private:
  struct Stretch {
    std::byte* begin = nullptr;
    uint64_t bytes = 0;
  };
  bool follows(const Stretch& open, const std::byte* data) const {
    const std::byte* const end = open.begin + open.bytes;
    return open.bytes != 0 && data >= end && data <= open.begin + (open.bytes + 7) / 8 * 8;
  }
  Status close(Stretch& open) {
    const uint64_t bytes = std::exchange(open.bytes, 0);
    return bytes == 0 ? Status() : copy_(open.begin, bytes);
  }

  const Copy& copy_;
  Stretch open_[2];  // the second stretch has grown last
};

template <typename Copy>
Status add_sections(Stretches<Copy>& stretches, PayloadStorage& payload) {
  if (payload.c()->kind == PENSTOCK_PAYLOAD_ABSENT) return {};
  for (size_t s = 0; s < payload.size(); ++s) {
    const penstock_section& section = payload.section(s);
    PENSTOCK_TRY(stretches.add(static_cast<std::byte*>(section.data),
                               section.count * dtype_bytes(section.dtype)));
  }
  return {};
}

// Calls body(item) for each device-resident item with a payload in this round.
template <typename Body>
void each_own(const Leg& leg, uint32_t round, const Body& body) {
  for (ItemRun& item : leg.coding->items)
    if (is_on_device(item.place()) && item.rounds.size() > round) body(item);
}

bool is_fetched(const MessageRun& message) {
  return !message.items.empty() && !message.is_announced();
}

}  // namespace

Status FetchScalars::begin(BucketRun& bucket) {
  const Stream& stream = bucket.context.on_device.residents->stream();
  PENSTOCK_TRY(part_of(bucket).scalars.bring(stream));
  return part_of(bucket).copied.record(stream.handle());
}

Status FetchScalars::end(BucketRun& bucket) {
  auto* scalars = coding_.prologue->send.as<float>();
  for (const MemoryCall& call : coding_.memory_calls) {
    if (!measures_on_device(call)) continue;
    const uint64_t end = call.scalars_first + call.items.size() * call.n_scalars;
    for (uint64_t i = call.scalars_first; i < end; ++i) scalars[i] = part_of(bucket).scalars[i];
  }
  return {};
}

bool FetchCounts::runs(const BucketRun& bucket) const {
  if (!Stage::runs(bucket)) return false;
  bool any = false;
  each_own(leg_, round_, [&](ItemRun& item) {
    for (size_t s = 0; s < item.own[round_].size(); ++s)
      any = any || item.own[round_].section(s).count == PENSTOCK_COUNT_ON_DEVICE;
  });
  return any;
}

Status FetchCounts::begin(BucketRun& bucket) {
  const Stream& stream = bucket.context.on_device.residents->stream();
  PENSTOCK_TRY(part_of(bucket).counts.bring(stream));
  return part_of(bucket).copied.record(stream.handle());
}

Status FetchCounts::end(BucketRun& bucket) {
  const FoundNumbers<uint64_t>& counts = part_of(bucket).counts;
  Status status;
  each_own(leg_, round_, [&](ItemRun& item) {
    PayloadStorage& payload = item.own[round_];
    for (size_t s = 0; s < payload.size(); ++s) {
      penstock_section& section = payload.section(s);
      if (section.count != PENSTOCK_COUNT_ON_DEVICE) continue;
      const bool has_count_of_indices = s == 1 && payload.c()->kind == PENSTOCK_PAYLOAD_SPARSE;
      section.count = has_count_of_indices
                          ? payload.section(0).count
                          : counts[uint64_t(section.device_count - counts.place(0))];
    }
    if (status.ok()) status = check_own(bucket, item, round_);
  });
  return status;
}

Status FetchPayloads::begin(BucketRun& bucket) {
  const Stream& stream = bucket.context.on_device.residents->stream();
  for (auto& message : leg_.messages[round_]) {
    if (!is_fetched(*message)) continue;
    const auto copy = [&](std::byte* there, uint64_t bytes) {
      return stream.copy_to_host(message->send.of_twin(there), there, bytes);
    };
    Stretches stretches(copy);
    for (const size_t position : message->items) {
      ItemRun& item = leg_.coding->items[position];
      if (is_on_device(item.place())) PENSTOCK_TRY(add_sections(stretches, item.own[round_]));
    }
    PENSTOCK_TRY(stretches.flush());
  }
  return part_of(bucket).copied.record(stream.handle());
}

Status Upload::begin(BucketRun& bucket) {
  const Stream& stream = bucket.context.on_device.residents->stream();
  for (auto& message : leg_.messages[round_]) {
    if (!is_fetched(*message)) continue;
    const bool is_gathered = !message->joins();
    const WorkMemory& arrived = message->receive.bytes() != 0 ? message->receive : message->send;
    const auto copy = [&](std::byte* there, uint64_t bytes) {
      return stream.copy_to_device(there, arrived.of_twin(there), bytes);
    };
    Stretches stretches(copy);
    for (uint32_t rank = 0; rank < (is_gathered ? message->group_size() : 1); ++rank) {
      // The payload of this rank is on the device already.
      if (is_gathered && rank == message->group_rank()) continue;
      for (const size_t position : message->coming_from(rank)) {
        ItemRun& item = leg_.coding->items[position];
        if (is_on_device(item.place()))
          PENSTOCK_TRY(add_sections(stretches, item.arrival(round_, rank)));
      }
    }
    PENSTOCK_TRY(stretches.flush());
  }
  return {};
}

bool has_payloads_on_host(const Leg& leg, uint32_t round) {
  const auto& messages = leg.messages[round];
  return std::any_of(messages.begin(), messages.end(),
                     [](const auto& message) { return is_fetched(*message); });
}

}  // namespace penstock

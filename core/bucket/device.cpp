#include "core/bucket/device.hpp"

#include "core/bucket/calls.hpp"
#include "core/bucket/watch.hpp"

#include <algorithm>

namespace penstock {
namespace {

// Joins stretches of a message that lie behind each other to one copy, as the sections of payloads
// mostly do: where there is a next one, it begins at the end, or at the next multiple of 8 bytes.
template <typename Copy>
class Stretches {
 public:
  explicit Stretches(const Copy& copy) : copy_(copy) {}

  Status add(std::byte* data, uint64_t bytes) {
    if (bytes == 0) return {};
    const bool follows =
        bytes_ != 0 && data >= begin_ + bytes_ && data <= begin_ + (bytes_ + 7) / 8 * 8;
    if (!follows) {
      PENSTOCK_TRY(flush());
      begin_ = data;
    }
    bytes_ = static_cast<uint64_t>(data - begin_) + bytes;
    return {};
  }
  Status flush() {
    const uint64_t bytes = std::exchange(bytes_, 0);
    return bytes == 0 ? Status() : copy_(begin_, bytes);
  }

 private:
  const Copy& copy_;
  std::byte* begin_ = nullptr;
  uint64_t bytes_ = 0;
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

Status named(Status status, const PieceRun& piece) {
  if (status.ok()) return status;
  return status.with_context(fmt::format("gradient '{}'", piece.gradient->name));
}

// Calls body(section) for those of own payloads on the device whose counts may vary.
template <typename Body>
void each_varying(BucketRun& bucket, const Body& body) {
  for (auto& coding : bucket.codings)
    for (ItemRun& item : coding->items) {
      if (!item.is_on_device() || !item.encodes) continue;
      for (size_t round = 0; round < item.rounds.size(); ++round)
        for (size_t s = 0; s < item.own[round].size(); ++s)
          if (item.rounds[round].combine == PENSTOCK_COMBINE_GATHER &&
              !item.rounds[round].sections[s].exact)
            body(item.own[round].section(s));
    }
}

Status lay_out_counts(BucketRun& bucket) {
  uint64_t n = 0;
  each_varying(bucket, [&](penstock_section&) { ++n; });
  if (n == 0) return {};
  FoundNumbers<uint64_t>& counts = bucket.device->counts;
  PENSTOCK_TRY(counts.make(bucket.context.residents->numbers, n));
  n = 0;
  each_varying(bucket,
               [&](penstock_section& section) { section.device_count = counts.place(n++); });
  return {};
}

bool measures_on_device(const MemoryCall& call) {
  return call.on_device && call.n_scalars != 0;
}

// Each has the place that it has in the prologue.
Status lay_out_scalars(BucketRun& bucket) {
  const Coding& coding = *bucket.codings.front();
  if (std::none_of(coding.memory_calls.begin(), coding.memory_calls.end(), measures_on_device))
    return {};
  return bucket.device->scalars.make(bucket.context.residents->numbers,
                                     coding.prologue->flag_index);
}

// At part.looked_at, for values that are not finite; what is found comes to the host.
Status look(DevicePart& part, const FoundNumbers<uint32_t>& found, const Stream& stream) {
  PENSTOCK_TRY(found.clear(stream));
  PENSTOCK_TRY(stream.find_nonfinite(part.looked_at));
  PENSTOCK_TRY(found.bring(stream));
  return part.copied.record(stream.handle());
}

// The pieces on the device.
Status list_pieces(BucketRun& bucket) {
  DevicePart& part = *bucket.device;
  part.looked_at.clear();
  for (size_t i = 0; i < bucket.pieces.size(); ++i) {
    const PieceRun& piece = bucket.pieces[i];
    if (!piece.is_on_device()) continue;
    const uint32_t dtype = piece.gradient->dtype;
    const uint64_t element = dtype_bytes(dtype);
    PENSTOCK_TRY(named(
        piece.gradient->resident->begin(piece.piece.first * element, piece.piece.numel * element),
        piece));
    auto* const widened = static_cast<float*>(piece.wide_there.data());
    part.looked_at.push_back(
        {piece.storage(), widened, piece.piece.numel, part.flags.place(i), dtype, 0});
  }
  return {};
}

const PieceRun* first_on_device(const BucketRun& bucket) {
  const auto first = std::find_if(bucket.pieces.begin(), bucket.pieces.end(),
                                  [](const PieceRun& piece) { return piece.is_on_device(); });
  return first == bucket.pieces.end() ? nullptr : &*first;
}

}  // namespace

Status check_way_on_device(const BucketRun& bucket) {
  const PieceRun* first = first_on_device(bucket);
  const uint32_t route = bucket.plan.route;
  const bool is_added = route == PENSTOCK_ROUTE_HIERARCHICAL &&
                        bucket.context.at(PENSTOCK_LEVEL_LOCAL).direct.channel != nullptr;
  if (first == nullptr || route == PENSTOCK_ROUTE_FLAT || route == PENSTOCK_ROUTE_SHARD || is_added)
    return {};
  return internal(
      "set '{}', bucket {}: gradient '{}' is worked on on a device, which has no way on route "
      "\"{}\"",
      bucket.context.name, bucket.number, first->gradient->name, route_name(route));
}

Status lay_out_device_part(BucketRun& bucket) {
  const PieceRun* first = first_on_device(bucket);
  if (first == nullptr) return {};
  if (bucket.defers())
    return internal(
        "set '{}', {}: gradient '{}' is worked on on a device, and the plan lets it wait for the "
        "next forward, which its scheduler did not say (LAUNCHES_IN_FORWARD)",
        bucket.context.name, bucket.label, first->gradient->name);
  Residents& residents = *bucket.context.residents;
  auto part = std::make_unique<DevicePart>();
  PENSTOCK_ASSIGN(part->copied, Event::make(residents.device()));
  PENSTOCK_TRY(part->flags.make(residents.numbers, bucket.pieces.size()));
  part->looked_at.reserve(bucket.pieces.size());
  if (const Coding& last = *bucket.codings.back(); last.alone) {
    PENSTOCK_TRY(part->sums.make(residents.numbers, last.items.size()));
    part->looked_at.reserve(last.items.size());
  }
  bucket.device = std::move(part);
  PENSTOCK_TRY(lay_out_scalars(bucket));
  return lay_out_counts(bucket);
}

void place_on_device(ItemRun& item, const Device& device) {
  for (penstock_item* c : {&item.for_compressor, &item.for_memory})
    for (penstock_tensor* tensor : {&c->grad, &c->work, &c->out}) {
      tensor->device_type = PENSTOCK_DEVICE_CUDA;
      tensor->device_id = device.id();
    }
}

Status look_on_device(BucketRun& bucket) {
  if (bucket.device == nullptr) return {};
  DevicePart& part = *bucket.device;
  part.brings_sums = part.brings_scalars = part.brings_counts = part.brings_payloads = false;
  part.brings_verdicts = part.finishes_sends = false;
  PENSTOCK_TRY(list_pieces(bucket));
  return look(part, part.flags, bucket.context.residents->looks());
}

Status look_at_sums(BucketRun& bucket, Coding& coding) {
  if (bucket.device == nullptr || !coding.alone) return {};
  DevicePart& part = *bucket.device;
  const Stream& stream = bucket.context.residents->stream();
  part.looked_at.clear();
  for (size_t i = 0; i < coding.items.size(); ++i) {
    const ItemRun& item = coding.items[i];
    if (!item.is_on_device() || !item.encodes) continue;
    void* const values = item.values();
    const auto factor = float(to_true_units(bucket, item));
    PENSTOCK_TRY(stream.scale(values, item.range.numel, item.dtype, factor));
    part.looked_at.push_back(
        {values, nullptr, item.range.numel, part.sums.place(i), item.dtype, 0});
  }
  part.brings_sums = !part.looked_at.empty();
  return part.brings_sums ? look(part, part.sums, stream) : Status();
}

Status bring_scalars(BucketRun& bucket, const Coding& coding) {
  if (bucket.device == nullptr || bucket.device->scalars.n == 0) return {};
  DevicePart& part = *bucket.device;
  part.brings_scalars = !coding.nonfinite;
  if (!part.brings_scalars) return {};
  const Stream& stream = bucket.context.residents->stream();
  PENSTOCK_TRY(part.scalars.bring(stream));
  return part.copied.record(stream.handle());
}

void take_scalars(BucketRun& bucket, Coding& coding) {
  if (bucket.device == nullptr || !bucket.device->brings_scalars) return;
  auto* scalars = coding.prologue->send.as<float>();
  for (const MemoryCall& call : coding.memory_calls) {
    if (!measures_on_device(call)) continue;
    const uint64_t end = call.scalars_first + call.items.size() * call.n_scalars;
    for (uint64_t i = call.scalars_first; i < end; ++i) scalars[i] = bucket.device->scalars[i];
  }
}

Status bring_counts(BucketRun& bucket, Leg& leg, uint32_t round) {
  if (bucket.device == nullptr) return {};
  DevicePart& part = *bucket.device;
  part.brings_counts = false;
  for (ItemRun& item : leg.coding->items) {
    if (!item.is_on_device() || item.rounds.size() <= round) continue;
    for (size_t s = 0; s < item.own[round].size(); ++s)
      part.brings_counts =
          part.brings_counts || item.own[round].section(s).count == PENSTOCK_COUNT_ON_DEVICE;
  }
  if (!part.brings_counts) return {};
  const Stream& stream = bucket.context.residents->stream();
  PENSTOCK_TRY(part.counts.bring(stream));
  return part.copied.record(stream.handle());
}

Status take_counts(BucketRun& bucket, Leg& leg, uint32_t round) {
  if (bucket.device == nullptr || !bucket.device->brings_counts) return {};
  const FoundNumbers<uint64_t>& counts = bucket.device->counts;
  for (ItemRun& item : leg.coding->items) {
    if (!item.is_on_device() || item.rounds.size() <= round) continue;
    PayloadStorage& payload = item.own[round];
    for (size_t s = 0; s < payload.size(); ++s) {
      penstock_section& section = payload.section(s);
      if (section.count != PENSTOCK_COUNT_ON_DEVICE) continue;
      const bool has_count_of_indices = s == 1 && payload.c()->kind == PENSTOCK_PAYLOAD_SPARSE;
      section.count = has_count_of_indices
                          ? payload.section(0).count
                          : counts[uint64_t(section.device_count - counts.place(0))];
    }
    PENSTOCK_TRY(check_own(bucket, item, round));
  }
  return {};
}

Status bring_payloads(BucketRun& bucket, Leg& leg, uint32_t round) {
  if (bucket.device == nullptr) return {};
  DevicePart& part = *bucket.device;
  part.brings_payloads = false;
  if (leg.coding->nonfinite) return {};
  const Stream& stream = bucket.context.residents->stream();
  Stopwatch* const watch = leg.coding->watch(round, &RoundWatches::out);
  for (auto& message : leg.messages[round]) {
    if (message->items.empty() || message->is_direct()) continue;
    if (!std::exchange(part.brings_payloads, true)) PENSTOCK_TRY(begin_watch(bucket, watch));
    const auto copy = [&](std::byte* there, uint64_t bytes) {
      return stream.copy_to_host(message->send.on_host(there), there, bytes);
    };
    Stretches stretches(copy);
    for (const size_t position : message->items) {
      ItemRun& item = leg.coding->items[position];
      if (item.is_on_device()) PENSTOCK_TRY(add_sections(stretches, item.own[round]));
    }
    PENSTOCK_TRY(stretches.flush());
  }
  if (!part.brings_payloads) return {};
  PENSTOCK_TRY(end_watch(bucket, watch));
  return part.copied.record(stream.handle());
}

Status take_payloads(BucketRun& bucket, Leg& leg, uint32_t round) {
  if (bucket.device == nullptr) return {};
  const Stream& stream = bucket.context.residents->stream();
  for (auto& message : leg.messages[round]) {
    if (message->items.empty() || message->is_direct()) continue;
    const bool is_gathered = message->kind == MessageRun::Kind::gather;
    const MessageMemory& arrived = message->receive.bytes() != 0 ? message->receive : message->send;
    const auto copy = [&](std::byte* there, uint64_t bytes) {
      return stream.copy_to_device(there, arrived.on_host(there), bytes);
    };
    Stretches stretches(copy);
    for (uint32_t rank = 0; rank < (is_gathered ? message->group_size() : 1); ++rank) {
      // What this rank has sent is there.
      if (is_gathered && rank == message->group_rank()) continue;
      for (const size_t position : message->coming_from(rank)) {
        ItemRun& item = leg.coding->items[position];
        if (item.is_on_device()) PENSTOCK_TRY(add_sections(stretches, item.arrival(round, rank)));
      }
    }
    PENSTOCK_TRY(stretches.flush());
  }
  return {};
}

Status give_out_on_device(BucketRun& bucket, PieceRun& piece) {
  const Stream& stream = bucket.context.residents->stream();
  const uint64_t numel = piece.piece.numel;
  Status status;
  if (bucket.is_void)
    status = stream.fill_nan(piece.values, numel, piece.dtype);
  else if (bucket.only_compensates && bucket.legs.front().kind.is_dense())
    status = stream.clear(piece.values, numel * dtype_bytes(piece.dtype));  // else compensate does
  if (status.ok() && piece.widened)
    status = stream.narrow(static_cast<const float*>(piece.values), piece.storage(), numel,
                           piece.gradient->dtype);
  if (status.ok()) status = piece.gradient->resident->end();
  return named(std::move(status), piece);
}

}  // namespace penstock

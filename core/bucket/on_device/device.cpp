#include "core/bucket/on_device/device.hpp"

#include <algorithm>

namespace penstock {
namespace {

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

// Each has the place that it has in the prologue.
Status lay_out_scalars(BucketRun& bucket) {
  const Coding& coding = *bucket.codings.front();
  if (std::none_of(coding.memory_calls.begin(), coding.memory_calls.end(), measures_on_device))
    return {};
  return bucket.device->scalars.make(bucket.context.residents->numbers,
                                     coding.prologue->flag_index);
}

const PieceRun* first_on_device(const BucketRun& bucket) {
  const auto first = std::find_if(bucket.pieces.begin(), bucket.pieces.end(),
                                  [](const PieceRun& piece) { return piece.is_on_device(); });
  return first == bucket.pieces.end() ? nullptr : &*first;
}

}  // namespace

Status named(Status status, const Gradient& gradient) {
  if (status.ok()) return status;
  return status.with_context(fmt::format("gradient '{}'", gradient.name));
}

bool measures_on_device(const MemoryCall& call) {
  return call.on_device && call.n_scalars != 0;
}

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
  return named(std::move(status), *piece.gradient);
}

}  // namespace penstock

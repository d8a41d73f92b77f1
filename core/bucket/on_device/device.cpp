#include "core/bucket/on_device/device.hpp"

#include <algorithm>

namespace penstock {
namespace {

// Calls body(section) for the sections of own payloads on the device whose counts may vary.
template <typename Body>
void each_varying(BucketRun& bucket, const Body& body) {
  for (auto& coding : bucket.codings)
    for (ItemRun& item : coding->items) {
      if (!is_on_device(item.place()) || !item.encodes) continue;
      for (size_t round = 0; round < item.rounds.size(); ++round)
        for (size_t s = 0; s < item.own[round].size(); ++s)
          if (item.rounds[round].combine == PENSTOCK_COMBINE_GATHER &&
              !item.rounds[round].sections[s].exact)
            body(item.own[round].section(s));
    }
}

Status lay_out_counts(DevicePart& part, BucketRun& bucket) {
  uint64_t n = 0;
  each_varying(bucket, [&](penstock_section&) { ++n; });
  if (n == 0) return {};
  FoundNumbers<uint64_t>& counts = part.counts;
  PENSTOCK_TRY(counts.make(bucket.context.on_device.residents->numbers, n));
  n = 0;
  each_varying(bucket,
               [&](penstock_section& section) { section.device_count = counts.place(n++); });
  return {};
}

// Each number has the index that it has in the prologue.
Status lay_out_scalars(DevicePart& part, const BucketRun& bucket) {
  const Coding& coding = *bucket.codings.front();
  if (std::none_of(coding.memory_calls.begin(), coding.memory_calls.end(), measures_on_device))
    return {};
  return part.scalars.make(bucket.context.on_device.residents->numbers,
                           coding.prologue->flag_index);
}

}  // namespace

const PieceRun* first_on_device(const BucketRun& bucket) {
  const auto first = std::find_if(bucket.pieces.begin(), bucket.pieces.end(),
                                  [](const PieceRun& piece) { return is_on_device(*piece.place); });
  return first == bucket.pieces.end() ? nullptr : &*first;
}

Status named(Status status, const Gradient& gradient) {
  if (status.ok()) return status;
  return status.with_context(fmt::format("gradient '{}'", gradient.name));
}

bool measures_on_device(const MemoryCall& call) {
  return is_on_device(*call.place) && call.n_scalars != 0;
}

Status lay_out(DevicePart& part, BucketRun& bucket, const PieceRun& first) {
  if (bucket.defers())
    return internal(
        "set '{}', {}: gradient '{}' is device-resident, and the plan lets it wait for the next "
        "forward, but the scheduler did not declare that (LAUNCHES_IN_FORWARD)",
        bucket.context.name, bucket.label, first.gradient->name);
  Residents& residents = *bucket.context.on_device.residents;
  PENSTOCK_ASSIGN(part.copied, Event::make(residents.device()));
  PENSTOCK_TRY(part.flags.make(residents.numbers, bucket.pieces.size()));
  part.writers.reserve(bucket.pieces.size());
  part.looked_at.reserve(bucket.pieces.size());
  if (const Coding& last = *bucket.codings.back(); last.leg != 0) {
    PENSTOCK_TRY(part.sums.make(residents.numbers, last.items.size()));
    part.looked_at.reserve(last.items.size());
  }
  bucket.each_message([&](uint32_t, uint32_t, const MessageRun& message) {
    // At most the indices and values of each item, or its share.
    part.copies.reserve(2 * message.coding->items.size());
  });
  PENSTOCK_TRY(lay_out_scalars(part, bucket));
  return lay_out_counts(part, bucket);
}

}  // namespace penstock

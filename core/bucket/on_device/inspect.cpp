#include "core/bucket/on_device/inspect.hpp"

#include "core/bucket/load.hpp"

namespace penstock {
namespace {

// At part.looked_at, for values that are not finite; what is found comes to the host.
Status look_at_values(DevicePart& part, const FoundNumbers<uint32_t>& found, const Stream& stream) {
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
        *piece.gradient));
    auto* const widened = static_cast<float*>(piece.wide_there.data());
    part.looked_at.push_back(
        {piece.storage(), widened, piece.piece.numel, part.flags.place(i), dtype, 0});
  }
  return {};
}

// Asks `poll` of each gradient that lies on a device, those before `n_done` have come.
template <typename Poll>
Status poll_gradients(BucketRun& bucket, size_t& n_done, bool& all, const Poll& poll) {
  all = true;
  for (; n_done < bucket.pieces.size(); ++n_done) {
    Gradient& gradient = *bucket.pieces[n_done].gradient;
    if (gradient.device_side == nullptr) continue;
    PENSTOCK_TRY(named(poll(gradient, all), gradient));
    if (!all) return {};
  }
  return {};
}

}  // namespace

Status Inspect::begin(BucketRun& bucket) {
  n_arrived_ = 0;
  if (bucket.device == nullptr) return {};
  PENSTOCK_TRY(list_pieces(bucket));
  return look_at_values(*bucket.device, bucket.device->flags, bucket.context.residents->looks());
}

Status Inspect::poll(BucketRun& bucket, uint64_t look, bool& has_come) {
  if (bucket.device != nullptr) {
    PENSTOCK_TRY(bucket.device->copied.query(has_come));
    if (!has_come) return {};
  }
  return poll_gradients(bucket, n_arrived_, has_come, [&](Gradient& gradient, bool& arrived) {
    if (gradient.mirror != nullptr) PENSTOCK_TRY(gradient.mirror->has_arrived(look, arrived));
    if (arrived)
      gradient.ready_us = gradient.mirror != nullptr ? gradient.mirror->arrived_us() : now_us();
    return Status();
  });
}

Status InspectSums::begin(BucketRun& bucket) {
  DevicePart& part = *bucket.device;
  const Stream& stream = bucket.context.residents->stream();
  part.looked_at.clear();
  for (size_t i = 0; i < coding_.items.size(); ++i) {
    const ItemRun& item = coding_.items[i];
    if (!item.is_on_device() || !item.encodes) continue;
    void* const values = item.values();
    const auto factor = float(to_true_units(bucket, item));
    PENSTOCK_TRY(stream.scale(values, item.range.numel, item.dtype, factor));
    part.looked_at.push_back(
        {values, nullptr, item.range.numel, part.sums.place(i), item.dtype, 0});
  }
  return part.looked_at.empty() ? Status() : look_at_values(part, part.sums, stream);
}

Status Return::poll(BucketRun& bucket, uint64_t, bool& has_come) {
  return poll_gradients(bucket, n_returned_, has_come, [&](Gradient& gradient, bool& returned) {
    return gradient.device_side->has_returned(returned);
  });
}

}  // namespace penstock

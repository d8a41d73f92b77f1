#include "core/bucket/on_device/inspect.hpp"

#include "core/bucket/load.hpp"

#include <algorithm>
#include <cstring>

namespace penstock {
namespace {

// At part.looked_at, for values that are not finite; what is found comes to the host.
Status look_at_values(DevicePart& part, const FoundNumbers<uint32_t>& found, const Stream& stream) {
  PENSTOCK_TRY(found.clear(stream));
  PENSTOCK_TRY(stream.find_nonfinite(part.looked_at));
  PENSTOCK_TRY(found.bring(stream));
  return part.copied.record(stream.handle());
}

// What a stream does ends in its order, so that its last gradient stands for all of the bucket.
Status wait_for_writers(const BucketRun& bucket, DevicePart& part) {
  part.writers.clear();
  for (const PieceRun& piece : bucket.pieces) {
    const Resident* resident = piece.gradient->on_device.resident;
    if (resident == nullptr || !resident->is_written()) continue;
    const auto same =
        std::find_if(part.writers.begin(), part.writers.end(), [&](const Resident* other) {
          return other->is_covered_by(*resident) || resident->is_covered_by(*other);
        });
    if (same == part.writers.end())
      part.writers.push_back(resident);
    else if ((*same)->is_covered_by(*resident))
      *same = resident;
  }
  for (const Resident* writer : part.writers) PENSTOCK_TRY(writer->wait_until_written());
  return {};
}

// The pieces on the device.
Status list_pieces(BucketRun& bucket, DevicePart& part) {
  part.looked_at.clear();
  for (size_t i = 0; i < bucket.pieces.size(); ++i) {
    const PieceRun& piece = bucket.pieces[i];
    if (!is_on_device(*piece.place)) continue;
    const uint32_t dtype = piece.gradient->dtype;
    const uint64_t element = dtype_bytes(dtype);
    PENSTOCK_TRY(named(piece.gradient->on_device.resident->begin(piece.piece.first * element,
                                                                 piece.piece.numel * element),
                       *piece.gradient));
    auto* const widened = piece.wide.as<float>();
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
    if (gradient.on_device.side == nullptr) continue;
    PENSTOCK_TRY(named(poll(gradient, all), gradient));
    if (!all) return {};
  }
  return {};
}

}  // namespace

Status Inspect::begin(BucketRun& bucket) {
  n_arrived_ = 0;
  if (part_ == nullptr) return {};
  PENSTOCK_TRY(wait_for_writers(bucket, *part_));
  PENSTOCK_TRY(list_pieces(bucket, *part_));
  return look_at_values(*part_, part_->flags, bucket.context.on_device.residents->looks());
}

Status Inspect::poll(BucketRun& bucket, uint64_t look, bool& has_come) {
  if (part_ != nullptr) {
    PENSTOCK_TRY(part_->copied.query(has_come));
    if (!has_come) return {};
  }
  return poll_gradients(bucket, n_arrived_, has_come, [&](Gradient& gradient, bool& arrived) {
    if (gradient.on_device.mirror != nullptr)
      PENSTOCK_TRY(gradient.on_device.mirror->has_arrived(look, arrived));
    if (arrived)
      gradient.ready_us =
          gradient.on_device.mirror != nullptr ? gradient.on_device.mirror->arrived_us() : now_us();
    return Status();
  });
}

// The host writes the zeros of those that are zero.
Status Inspect::end(BucketRun& bucket) {
  for (const PieceRun& piece : bucket.pieces) {
    const Mirror* mirror = piece.gradient->on_device.mirror;
    if (mirror != nullptr && mirror->is_zero())
      std::memset(piece.storage(), 0, piece.piece.numel * dtype_bytes(piece.gradient->dtype));
  }
  return {};
}

Status GiveOut::begin(BucketRun& bucket) {
  for (const PieceRun& piece : bucket.pieces) {
    Mirror* mirror = piece.gradient->on_device.mirror;
    if (mirror == nullptr) continue;
    const uint64_t element = dtype_bytes(piece.gradient->dtype);
    PENSTOCK_TRY(named(mirror->give(piece.piece.first * element, piece.piece.numel * element),
                       *piece.gradient));
  }
  return {};
}

Status InspectSums::begin(BucketRun& bucket) {
  DevicePart& part = part_of(bucket);
  const Stream& stream = bucket.context.on_device.residents->stream();
  part.looked_at.clear();
  for (size_t i = 0; i < coding_.items.size(); ++i) {
    const ItemRun& item = coding_.items[i];
    if (!is_on_device(item.place()) || !item.encodes) continue;
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
    return gradient.on_device.side->has_returned(returned);
  });
}

}  // namespace penstock

#include "core/bucket/on_device/inspect.hpp"

#include "core/bucket/load.hpp"

#include <algorithm>
#include <cstring>

namespace penstock {
namespace {

// Searches part.looked_at for values that are not finite, and copies the findings to the host.
Status look_at_values(DevicePart& part, const FoundNumbers<uint32_t>& found, const Stream& stream) {
  PENSTOCK_TRY(found.clear(stream));
  PENSTOCK_TRY(stream.find_nonfinite(part.looked_at));
  PENSTOCK_TRY(found.bring(stream));
  return part.copied.record(stream.handle());
}

// The work of a stream ends in order, so that the last gradient of a stream stands for all its
// gradients in the bucket.
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

// Lists the pieces on the device.
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

// Calls `poll` for each gradient on a device, until a gradient has not finished. The pieces before
// `n_done` have finished.
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
  return look_at_values(*part_, part_->flags, bucket.context.on_device.residents->inspection());
}

Status Inspect::poll(BucketRun& bucket, uint64_t pass, bool& has_come) {
  if (part_ != nullptr) {
    PENSTOCK_TRY(part_->copied.query(has_come));
    if (!has_come) return {};
  }
  return poll_gradients(bucket, n_arrived_, has_come, [&](Gradient& gradient, bool& arrived) {
    if (gradient.on_device.staging_buffer != nullptr)
      PENSTOCK_TRY(gradient.on_device.staging_buffer->has_arrived(pass, arrived));
    if (arrived)
      gradient.ready_us = gradient.on_device.staging_buffer != nullptr
                              ? gradient.on_device.staging_buffer->arrived_us()
                              : now_us();
    return Status();
  });
}

// Writes the zeros of gradients that are zero into host memory.
Status Inspect::end(BucketRun& bucket) {
  for (const PieceRun& piece : bucket.pieces) {
    const StagingBuffer* staging_buffer = piece.gradient->on_device.staging_buffer;
    if (staging_buffer != nullptr && staging_buffer->is_zero())
      std::memset(piece.storage(), 0, piece.piece.numel * dtype_bytes(piece.gradient->dtype));
  }
  return {};
}

Status GiveOut::begin(BucketRun& bucket) {
  for (const PieceRun& piece : bucket.pieces) {
    StagingBuffer* staging_buffer = piece.gradient->on_device.staging_buffer;
    if (staging_buffer == nullptr) continue;
    const uint64_t element = dtype_bytes(piece.gradient->dtype);
    PENSTOCK_TRY(
        named(staging_buffer->give(piece.piece.first * element, piece.piece.numel * element),
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
    if (!is_on_device(item.place()) || !item.encodes || !is_inspected_as_sum(coding_, item))
      continue;
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

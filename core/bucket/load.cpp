#include "core/bucket/load.hpp"

#include "core/bucket/on_device/device.hpp"
#include "core/tensor/elements.hpp"

#include <kernels/norm.hpp>

#include <algorithm>

namespace penstock {
namespace {

// Where nothing keeps float32, 16 bits hold the gradient and the carry, rounded once.
void add_carry_to_halves(uint32_t dtype, void* values, const float* carry, uint64_t count,
                         float scale) {
  constexpr uint64_t kTile = 1024;
  float sum[kTile];
  for (uint64_t start = 0; start < count; start += kTile) {
    const uint64_t part = std::min(kTile, count - start);
    auto* halves = static_cast<uint16_t*>(values) + start;
    to_float32(dtype, halves, sum, part);
    for (uint64_t i = 0; i < part; ++i) sum[i] += carry[start + i] * scale;
    from_float32(dtype, sum, halves, part);
  }
}

// All of it is looked at, but for a large gradient that travels as it is: there a sweep would be
// all that is done to it. Its beginning, its end and a part that moves on with the steps tell a
// gradient that is not finite as a whole, which is what a loss that is not finite leaves behind.
bool looks_finite(const PieceRun& item, uint64_t step) {
  constexpr uint64_t kPart = 4096, kLarge = 16 * kPart;
  const uint64_t count = item.piece.numel;
  if (!item.is_never_void || count <= kLarge) return all_finite(item.dtype, item.values, count);
  const uint64_t parts = count / kPart;
  const auto* bytes = static_cast<const std::byte*>(item.values);
  const auto part = [&](uint64_t first) {
    return all_finite(item.dtype, bytes + first * dtype_bytes(item.dtype), kPart);
  };
  return part(0) && part(count - kPart) && part(step % parts * kPart);
}

// Rare: see let_go.cpp.
void add_norm(BucketRun& bucket, const PieceRun& piece) {
  if (piece.dtype != PENSTOCK_FLOAT32) return;
  const double scale = bucket.context.step.grad_scale;
  bucket.context.square_norm.fetch_add(
      kernels::sum_of_squares(static_cast<const float*>(piece.values), piece.piece.numel,
                              kernels::CodePath::kPortable) /
      (scale * scale));
}

void note_nonfinite(SetContext& context, const Gradient& gradient) {
  uint64_t none = SetContext::kNoGradient;
  context.nonfinite_gradient.compare_exchange_strong(none, gradient.index,
                                                     std::memory_order_relaxed);
}

void take_note(BucketRun& bucket, const PieceRun& piece, bool is_finite) {
  if (is_finite) return;
  note_nonfinite(bucket.context, *piece.gradient);
  // What travels as it is arrives as it is, on every rank.
  bucket.nonfinite = bucket.nonfinite || !piece.is_never_void;
}

bool take_sum(BucketRun& bucket, const ItemRun& item) {
  void* values = item.values();
  const double factor = to_true_units(bucket, item);
  if (factor != 1) scale(item.dtype, values, item.range.numel, factor);
  return all_finite(item.dtype, values, item.range.numel);
}

}  // namespace

double to_true_units(const BucketRun& bucket, const ItemRun& sum) {
  return sum.sum_of->work_is == PENSTOCK_WORK_IS_GRAD ? 1 / bucket.context.step.grad_scale : 1;
}

void add_carry(const Gradient& gradient, const ElementRange& range, uint32_t dtype, void* values,
               double scale) {
  const float* carry = gradient.carry.as<float>() + range.first;
  if (dtype == PENSTOCK_FLOAT32) {
    auto* target = static_cast<float*>(values);
    for (uint64_t i = 0; i < range.numel; ++i) target[i] += carry[i] * static_cast<float>(scale);
  } else if (dtype == PENSTOCK_FLOAT64) {
    auto* target = static_cast<double*>(values);
    for (uint64_t i = 0; i < range.numel; ++i) target[i] += carry[i] * scale;
  } else if (dtype == PENSTOCK_FLOAT16 || dtype == PENSTOCK_BFLOAT16) {
    add_carry_to_halves(dtype, values, carry, range.numel, static_cast<float>(scale));
  }
}

Status Load::begin(BucketRun& bucket) {
  bucket.nonfinite = false;
  bucket.is_void = false;
  bucket.ran = true;
  bucket.failure = Status();
  bucket.owes_backward = bucket.defers();
  bucket.encode_us = bucket.decode_us = bucket.exchange_us = 0;
  bucket.each_message([](uint32_t, uint32_t, MessageRun& message) { message.sent = false; });
  for (size_t i = 0; i < bucket.pieces.size(); ++i) {
    PieceRun& piece = bucket.pieces[i];
    piece.values = piece.storage();
    if (piece.is_on_device()) {
      if (piece.widened) piece.values = piece.wide_there.data();
      take_note(bucket, piece, !bucket.device->is_nonfinite(i));
      continue;
    }
    if (piece.workplace == Workplace::mirror && piece.gradient->mirror->is_zero())
      std::memset(piece.values, 0, piece.piece.numel * dtype_bytes(piece.gradient->dtype));
    if (piece.widened) {
      to_float32(piece.gradient->dtype, piece.values, piece.wide.as<float>(), piece.piece.numel);
      piece.values = piece.wide.data();
    }
    if (piece.gradient->has_carry && !piece.carry_joins_result)
      add_carry(*piece.gradient, {piece.piece.first, piece.piece.numel}, piece.dtype, piece.values,
                bucket.context.step.grad_scale);
    take_note(bucket, piece, looks_finite(piece, bucket.context.step.index));
    if (bucket.context.measures_norm) add_norm(bucket, piece);
  }
  for (auto& coding : bucket.codings) {
    const bool takes_pieces = coding == bucket.codings.front() && coding->leg == 0;
    coding->nonfinite = takes_pieces && bucket.nonfinite;
    coding->has_begun = coding->compensated = coding->decoded = false;
    coding->rounds_encoded = 0;
    std::fill(coding->failed_owners.begin(), coding->failed_owners.end(), false);
  }
  return {};
}

// Those on a device have been looked at.
void take_sums(BucketRun& bucket, Coding& coding) {
  for (size_t i = 0; i < coding.items.size(); ++i) {
    const ItemRun& item = coding.items[i];
    if (!item.encodes) continue;
    const bool is_finite =
        item.is_on_device() ? bucket.device->sums[i] == 0 : take_sum(bucket, item);
    if (is_finite) continue;
    note_nonfinite(bucket.context, *item.gradient);
    coding.nonfinite = true;
  }
}

}  // namespace penstock

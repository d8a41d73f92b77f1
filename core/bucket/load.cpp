#include "core/bucket/load.hpp"

#include "core/tensor/elements.hpp"

#include <algorithm>

namespace penstock {
namespace {

// Adds the carry to 16-bit values. The sum is rounded once, because nothing keeps the values in
// float32.
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

void take_note(BucketRun& bucket, const PieceRun& piece, bool is_finite) {
  if (is_finite) return;
  note_nonfinite(bucket.context, *piece.gradient);
  // Values that travel unchanged arrive unchanged on every rank, so they make no bucket void.
  bucket.nonfinite = bucket.nonfinite || !piece.is_never_void;
}

}  // namespace

void note_nonfinite(SetContext& context, const Gradient& gradient) {
  uint64_t none = SetContext::kNoGradient;
  context.nonfinite_gradient.compare_exchange_strong(none, gradient.index,
                                                     std::memory_order_relaxed);
}

double to_true_units(const BucketRun& bucket, const ItemRun& sum) {
  if (sum.sum_of == nullptr) return 1;  // a host's sum
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
  bucket.encode_us = bucket.decode_us = bucket.exchange_us = bucket.counted_us = 0;
  bucket.each_message([](uint32_t, uint32_t, MessageRun& message) { message.sent = false; });
  for (size_t i = 0; i < bucket.pieces.size(); ++i) {
    const PieceRun& piece = bucket.pieces[i];
    take_note(bucket, piece, piece.place->load(bucket, i));
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

bool is_inspected_as_sum(const Coding& coding, const ItemRun& item) {
  return coding.of_sums || (coding.leg != 0 && !item.passes_through && !item.rounds.empty());
}

void take_sums(BucketRun& bucket, Coding& coding) {
  for (size_t i = 0; i < coding.items.size(); ++i) {
    const ItemRun& item = coding.items[i];
    if (!item.encodes || !is_inspected_as_sum(coding, item)) continue;
    if (item.place().take_sum(bucket, coding, i)) continue;
    note_nonfinite(bucket.context, *item.gradient);
    coding.nonfinite = true;
  }
}

}  // namespace penstock

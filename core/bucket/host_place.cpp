#include "core/bucket/host_place.hpp"

#include "core/bucket/bucket.hpp"
#include "core/bucket/load.hpp"
#include "core/tensor/elements.hpp"

#include <kernels/norm.hpp>

#include <cstring>

namespace penstock {
namespace {

penstock_exec exec_of_host() {
  penstock_exec exec{};
  exec.struct_size = sizeof exec;
  exec.device_type = PENSTOCK_DEVICE_CPU;
  return exec;
}

// Inspects all values, except in a large gradient that travels unchanged, because there the sweep
// would be the only work on the gradient. In such a gradient it inspects the beginning, the end and
// a part that moves with the steps. They detect a gradient that is not finite as a whole, which is
// the effect of a loss that is not finite.
bool looks_finite(const PieceRun& piece, uint64_t step) {
  constexpr uint64_t kPart = 4096, kLarge = 16 * kPart;
  const uint64_t count = piece.piece.numel;
  if (!piece.is_never_void || count <= kLarge) return all_finite(piece.dtype, piece.values, count);
  const uint64_t parts = count / kPart;
  const auto* bytes = static_cast<const std::byte*>(piece.values);
  const auto part = [&](uint64_t first) {
    return all_finite(piece.dtype, bytes + first * dtype_bytes(piece.dtype), kPart);
  };
  return part(0) && part(count - kPart) && part(step % parts * kPart);
}

// Used only in a step after many forgotten steps (core/set/forgotten_watch.cpp).
void add_norm(BucketRun& bucket, const PieceRun& piece) {
  if (piece.dtype != PENSTOCK_FLOAT32) return;
  const double scale = bucket.context.step.grad_scale;
  bucket.context.square_norm.fetch_add(
      kernels::sum_of_squares(static_cast<const float*>(piece.values), piece.piece.numel,
                              kernels::CodePath::kPortable) /
      (scale * scale));
}

}  // namespace

HostPlace::HostPlace() : WorkPlace(exec_of_host()) {}

Result<WorkMemory> HostPlace::make_scratch(uint64_t bytes) const {
  return WorkMemory(Buffer::unwritten(bytes));
}

Link& HostPlace::link_of(const Coding& coding, const ItemRun&, uint32_t) const {
  return coding.links->transport;
}

Link& HostPlace::link_of_values(LevelLinks& links) const {
  return links.transport;
}

bool HostPlace::sends_from_here(const Link& link) const {
  return !link.is_announced;
}

void HostPlace::point(penstock_section& section, const WorkMemory&, std::byte* here) const {
  section.data = here;
  section.on_host = nullptr;
}

// ---- values ----

Status HostPlace::clear(void* values, uint64_t bytes) const {
  if (bytes != 0) std::memset(values, 0, bytes);
  return {};
}

Status HostPlace::scale(uint32_t dtype, void* values, uint64_t count, double factor) const {
  penstock::scale(dtype, values, count, factor);
  return {};
}

Status HostPlace::divide(uint32_t dtype, void* values, uint64_t count, uint32_t by) const {
  penstock::divide(dtype, values, count, by);
  return {};
}

void HostPlace::copy(BucketRun&, const void* source, void* target, uint64_t count,
                     uint64_t element) const {
  std::memcpy(target, source, count * element);
}

bool HostPlace::load(BucketRun& bucket, size_t number) const {
  PieceRun& piece = bucket.pieces[number];
  piece.values = piece.storage();
  if (piece.widened) {
    to_float32(piece.gradient->dtype, piece.values, piece.wide.as<float>(), piece.piece.numel);
    piece.values = piece.wide.data();
  }
  if (piece.gradient->has_carry && !piece.carry_joins_result)
    add_carry(*piece.gradient, {piece.piece.first, piece.piece.numel}, piece.dtype, piece.values,
              bucket.context.step.grad_scale);
  if (bucket.context.measures_norm) add_norm(bucket, piece);
  return piece.inspected_by_encode || looks_finite(piece, bucket.context.step.index);
}

Status HostPlace::store(BucketRun& bucket, PieceRun& piece) const {
  const uint64_t count = piece.piece.numel;
  if (bucket.is_void)
    fill_nan(piece.dtype, piece.values, count);
  else if (bucket.only_compensates)
    PENSTOCK_TRY(clear(piece.values, count * dtype_bytes(piece.dtype)));
  if (piece.widened)
    from_float32(piece.gradient->dtype, piece.wide.as<float>(), piece.storage(), count);
  return {};
}

bool HostPlace::take_sum(BucketRun& bucket, Coding& coding, size_t number) const {
  const ItemRun& item = coding.items[number];
  void* values = item.values();
  const double factor = to_true_units(bucket, item);
  if (factor != 1) penstock::scale(item.dtype, values, item.range.numel, factor);
  return all_finite(item.dtype, values, item.range.numel);
}

// ---- payloads ----

Status HostPlace::clear(const penstock_section& section, uint64_t bytes) const {
  return clear(section.data, bytes);
}

const void* HostPlace::sent(const MessageRun&, const penstock_section& section) const {
  return section.data;
}

void HostPlace::moved(penstock_section& section, std::byte* target) const {
  section.data = target;
}

}  // namespace penstock

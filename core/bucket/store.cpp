#include "core/bucket/store.hpp"

#include "core/bucket/on_device/device.hpp"
#include "core/tensor/elements.hpp"

namespace penstock {

Status Store::begin(BucketRun& bucket) {
  for (PieceRun& piece : bucket.pieces) {
    if (piece.is_on_device()) {
      PENSTOCK_TRY(give_out_on_device(bucket, piece));
      continue;
    }
    if (bucket.is_void)
      fill_nan(piece.dtype, piece.values, piece.piece.numel);
    else if (bucket.only_compensates && piece.piece.numel != 0)
      std::memset(piece.values, 0, piece.piece.numel * dtype_bytes(piece.dtype));
    if (piece.widened)
      from_float32(piece.gradient->dtype, piece.wide.as<float>(), piece.storage(),
                   piece.piece.numel);
    if (piece.workplace == Workplace::mirror) {
      const uint64_t element = dtype_bytes(piece.gradient->dtype);
      const Status given =
          piece.gradient->mirror->give(piece.piece.first * element, piece.piece.numel * element);
      if (!given.ok())
        return given.with_context(fmt::format("gradient '{}'", piece.gradient->name));
    }
  }
  return {};
}

}  // namespace penstock

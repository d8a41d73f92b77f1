#include "core/bucket/store.hpp"

namespace penstock {

Status Store::begin(BucketRun& bucket) {
  for (PieceRun& piece : bucket.pieces) PENSTOCK_TRY(piece.place->store(bucket, piece));
  return {};
}

}  // namespace penstock

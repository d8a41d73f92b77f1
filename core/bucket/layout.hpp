// Laying out a bucket at plan time: payloads, messages, buffers and the lists of calls.
#pragma once

#include "core/bucket/bucket.hpp"
#include "core/state/state_store.hpp"

namespace penstock {

// How the compressor compensates and encodes in one sweep; `table` is null if it cannot.
struct FoldEncoder {
  const penstock_fold_encoder* table = nullptr;
  bool reads_before = false;  // from one generation of work and momentum into the next
  bool inspects = false;      // whether the gradients are finite
};
FoldEncoder fold_encoder(const CompressorInstance& compressor);  // [control]

// Makes room for the own payload decoded to dense float32. [control]
Status make_returned(const Coding& coding, ItemRun& item);

// Makes everything that a step needs. The items must be complete except for their payloads, and the
// channels must be open. [control]
Status lay_out(BucketRun& bucket, StateStore& states);

}  // namespace penstock

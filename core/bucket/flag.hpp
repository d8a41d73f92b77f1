// What travels beside payloads: whether a rank's gradients are finite, and what became of the steps
// before, which must be the same on every rank. Of a gathered message it is a word of its header,
// of a sum one element more.
#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

// ---- headers ----

// Nonfinite: this rank's gradients are not finite, and its payloads are absent; of results, which
// go from device to device: there are none, for some rank's were not. Not taken: and the memories
// of this host have not seen its gradients either. The upper half: SetContext::past.
inline constexpr uint32_t kWireNonfinite = 1u << 0, kWireNotTaken = 1u << 1;

uint32_t wire_word(const BucketRun& bucket, uint32_t flags);
// `rank`: of the message's group, whose word it is. MISMATCH where it comes from another past.
Status check_past(const BucketRun& bucket, const MessageRun& message, uint32_t rank, uint32_t word);

// ---- sums ----

// Added up over ranks, or averaged; exact enough in 16 bits for 3000 of them.
float summed_flag(const BucketRun& bucket, bool is_nonfinite);
// Voids the bucket where some rank's gradients are not finite. MISMATCH as above, on some of the
// ranks that differ.
Status take_summed_flag(BucketRun& bucket, float sum, bool is_mean);

}  // namespace penstock

// What travels beside payloads: whether a rank's gradients are finite, and what became of the steps
// before, which must be the same on every rank. Of a gathered message it is a word of its header,
// of a sum one element more.
#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

// ---- headers ----

// Nonfinite: the gradients of the sender are not finite, and its payloads are absent; on a leg of
// results, the bucket is void. Not taken: the memories of this host have not taken its gradients
// either. The upper 16 bits: SetContext::past.
inline constexpr uint32_t kWireNonfinite = 1u << 0, kWireNotTaken = 1u << 1;

uint32_t wire_word(const BucketRun& bucket, uint32_t flags);
// `rank`: of the message's group, whose word it is. MISMATCH where it comes from another past.
Status check_past(const BucketRun& bucket, const MessageRun& message, uint32_t rank, uint32_t word);

// ---- sums ----

// A flag is an element of the message that it travels in.
void write_flag(uint32_t dtype, void* elements, uint64_t index, float flag);
float flag_at(uint32_t dtype, const void* elements, uint64_t index);

// Added up over ranks, or averaged. 16 bits are exact enough for up to 3000 ranks.
float summed_flag(const BucketRun& bucket, bool is_nonfinite);
// Makes the bucket void if the gradients of some rank are not finite. MISMATCH on a rank with an
// even digest of the past if that of another is odd.
Status take_summed_flag(BucketRun& bucket, float sum, bool is_mean);

}  // namespace penstock

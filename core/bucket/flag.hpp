// The flags that travel with payloads: whether the gradients of a rank are finite, and a digest of
// the outcomes of earlier steps, which must be equal on every rank. In a gathered message the flags
// are a word of the header; in a sum they are one more element.
#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

// ---- headers ----

// kWireNonfinite: the gradients of the sender are not finite and its payloads are absent; on a leg
// of results, the bucket is void. kWireNotTaken: the memories of this host have not taken its
// gradients either. The upper 16 bits of the word: SetContext::past.
inline constexpr uint32_t kWireNonfinite = 1u << 0, kWireNotTaken = 1u << 1;

uint32_t wire_word(const BucketRun& bucket, uint32_t flags);
// `word` came from `rank` of the message's group. MISMATCH if its past differs from the past of
// this rank.
Status check_past(const BucketRun& bucket, const MessageRun& message, uint32_t rank, uint32_t word);

// ---- sums ----

// Writes or reads a flag, which is an element of its message.
void write_flag(uint32_t dtype, void* elements, uint64_t index, float flag);
float flag_at(uint32_t dtype, const void* elements, uint64_t index);

// The flag of this rank. The flags of all ranks are added up or averaged. The limit is 3000 ranks,
// and nothing checks it: in a mean of more than 3276 ranks one flag of a non-finite gradient gives
// less than 1.25, in a sum 4096 odd digests look like such a flag, and 16 bits round.
float summed_flag(const BucketRun& bucket, bool is_nonfinite);
// Makes the bucket void if the gradients of some rank are not finite. MISMATCH on a rank with an
// even digest of the past if the digest of another rank is odd.
Status take_summed_flag(BucketRun& bucket, float sum, bool is_mean);

}  // namespace penstock

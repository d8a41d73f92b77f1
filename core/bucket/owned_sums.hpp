// Sums of which each rank wants one part: a reduce-scatter. A set has such sums if each result is
// for its owner only (PENSTOCK_SET_RESULT_AT_OWNER). They move half the bytes of an all-reduce.
//
// The message has one share for each rank of the group: the payloads of the items that the rank
// owns, and then a flag that every rank sets. From the flag in its own share each rank learns
// whether the bucket is void. An announced message has no flags, because its header carries them.
#pragma once

#include "core/bucket/sums.hpp"

namespace penstock {

struct OwnedSumMessage final : SumMessage {
  std::string_view name() const override { return "owned sum"; }
  // Makes the buffers: all shares are sent, and this rank's share is received. `by_owner` must be
  // set. OUT_OF_MEMORY. [control]
  Status make_room(uint32_t round) override;
  Status prepare(Leg& leg, uint32_t round) override;
  void echo(uint32_t round) override;
  Status read(const Leg& leg, uint32_t round) override;
  const std::vector<size_t>& coming_from(uint32_t) const override { return by_owner[group_rank()]; }
};

// Makes the message of items whose sums go to their owners. [control]
Status lay_out_owned_sum(BucketRun& bucket, Leg& leg, uint32_t round, const Summed& how,
                         std::vector<size_t> items);

}  // namespace penstock

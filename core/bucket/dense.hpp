// The messages of dense legs, which move values unchanged: gradients to the owners of their sums,
// and results back.
//
// The buffer has one share for each owner: the elements of the bucket's pieces that the owner owns,
// and then a flag that all senders set. From its flag each owner learns whether gradients of some
// rank of the host are not finite, and in the end every rank learns whether the bucket is void. An
// announced message has no flags, because its header carries the flags (announcement.hpp).
#pragma once

#include "core/bucket/messages.hpp"

namespace penstock {

// Carries gradients, unchanged, to the owners of their sums.
struct ScatteredMessage final : MessageRun {
  std::string_view name() const override { return "scattered"; }
  // Copies pieces into the send buffer, and sets the flags of their owners' shares.
  Status prepare(Leg&, uint32_t round) override { return pack(round); }
  Status pack(uint32_t round) override;
  // Notes in the coding whether the host's gradients are finite, and scales the sums of this owner
  // (means.hpp).
  Status read(const Leg& leg, uint32_t round) override;
};

// Carries results from their owners to all ranks.
struct SpreadMessage final : MessageRun {
  std::string_view name() const override { return "spread"; }
  // Sets the flag of this rank's share: whether the bucket is void, and whether the memories of
  // this host have taken its gradients nevertheless.
  Status prepare(Leg& leg, uint32_t round) override;
  // Reads the flags, and copies the results into the pieces unless the bucket is void.
  Status read(const Leg& leg, uint32_t round) override;
};

// Makes the messages of leg `scatter`, which brings sums to the coding after it, and of leg
// `spread`, which brings the results of the coding to all ranks; `spread` is null if no leg does
// this. OUT_OF_MEMORY on a device. [control]
Status lay_out_scattered(BucketRun& bucket, Leg& scatter, Leg* spread);

}  // namespace penstock

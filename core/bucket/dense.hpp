// Legs that move values as they are: gradients to those who own their sums, and results back.
//
// The buffer holds, owner after owner, what each owns of the bucket's pieces, and behind each share
// a flag that all its senders set. So every owner learns at once whether some rank of the host has
// gradients that are not finite, and every rank learns in the end whether the bucket is void. An
// announced message has no flags: its header carries them (announcement.hpp).
#pragma once

#include "core/bucket/messages.hpp"

namespace penstock {

// Gradients, as they are, to those who own their sums.
struct ScatteredMessage final : MessageRun {
  std::string_view name() const override { return "scattered"; }
  // Pieces into the send buffer, with the flags of those that have them.
  Status prepare(Leg&, uint32_t round) override { return pack(round); }
  Status pack(uint32_t round) override;
  // Tells the coding whether the host's gradients are finite, and scales its sums to what is
  // encoded.
  Status read(const Leg& leg, uint32_t round) override;
};

// Results, from their owners to all.
struct SpreadMessage final : MessageRun {
  std::string_view name() const override { return "spread"; }
  // The flag of this rank's share: whether the bucket is void, and whether the gradients of this
  // host were taken nevertheless.
  Status prepare(Leg& leg, uint32_t round) override;
  // Results into the pieces.
  Status read(const Leg& leg, uint32_t round) override;
};

// The messages of the leg that scatters sums to the coding behind it, and of the one that spreads
// what comes out of it; null: nothing does. OUT_OF_MEMORY on a device. [control]
Status lay_out_scattered(BucketRun& bucket, Leg& scatter, Leg* spread);

}  // namespace penstock

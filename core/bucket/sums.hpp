// Messages of which the ranks' values are added up on the way.
#pragma once

#include "core/bucket/messages.hpp"

namespace penstock {

// Payloads of one type, all added up in one way. A flag follows if the numbers are floats that are
// added or averaged.
struct SumMessage : MessageRun {
  // Its buffers: what is sent must stay where it may have to be given back. Items are set.
  // OUT_OF_MEMORY. [control]
  virtual Status make_room(uint32_t round);
  std::string_view name() const override { return "sum"; }
  Status prepare(Leg& leg, uint32_t round) override;
  Status read(const Leg& leg, uint32_t round) override;

 protected:
  Status read_flag(const void* arrived) const;
};

// A flag alone, or the prologue of a coding: what memories have measured (`Measure` writes it), and
// the flag.
struct FlagMessage final : SumMessage {
  std::string_view name() const override { return "flag"; }
  Status read(const Leg& leg, uint32_t round) override;
  // As it has arrived.
  Status take() const { return read_flag(message.receive); }
};

// The second half of a sum: this rank's share goes to all.
struct SharesMessage final : SumMessage {
  std::string_view name() const override { return "shares"; }
  Status prepare(Leg&, uint32_t) override { return {}; }
};

// Items that are added up in one message: of one type, in one way, over one link.
struct Summed {
  bool is_announced;
  uint32_t dtype, reduction;
  auto operator<=>(const Summed&) const = default;
};

// A message of one leg, or in two halves: reduced and scattered, then what this rank holds goes to
// all. [control]
Status lay_out_sum(BucketRun& bucket, Leg& leg, uint32_t round, const Summed& how,
                   std::vector<size_t> items);
Status lay_out_halves(BucketRun& bucket, Leg& begins, Leg& ends, uint32_t round, const Summed& how,
                      std::vector<size_t> items);
// Makes a message of `n_numbers` floats and a flag. [control]
std::unique_ptr<FlagMessage> make_flag(BucketRun& bucket, Coding& coding, uint64_t n_numbers);

}  // namespace penstock

// Messages in which the values of the ranks are added up on the way.
#pragma once

#include "core/bucket/messages.hpp"

namespace penstock {

// Payloads of one element type with one reduction. A flag follows if the numbers are floats that
// are added or averaged.
struct SumMessage : MessageRun {
  // Makes the buffers. A payload that may be given back must not be overwritten, so it gets a
  // receive buffer of its own. The items must be set. OUT_OF_MEMORY. [control]
  virtual Status make_room(uint32_t round);
  std::string_view name() const override { return "sum"; }
  Status prepare(Leg& leg, uint32_t round) override;
  Status read(const Leg& leg, uint32_t round) override;

 protected:
  // Sets whether a flag travels behind the values. [control]
  void choose_flag();
  // Points the payloads of `positions` at their places in the message, one after the other from
  // `at` on. [control]
  void point_sent(const std::vector<size_t>& positions, uint32_t round, std::byte* at);
  void point_received(const std::vector<size_t>& positions, uint32_t round,
                      const WorkMemory& arrived, std::byte* at);
  Status read_flag(const void* arrived) const;
  // Gives the arrived payloads of `positions` their kinds, which do not travel.
  void take_kinds(const std::vector<size_t>& positions, uint32_t round);

 private:
  // Whether the sums from which later rounds begin are finite. Every rank has their bits. Methods
  // make zeros of a factor that has overflowed, so the last round would not show it, and the
  // gradient would wait in the memories for ever.
  bool may_go_on(uint32_t round) const;
};

// A flag alone, or the prologue of a coding: the scalars that memories have measured (`Measure`
// writes them), and the flag.
struct FlagMessage final : SumMessage {
  std::string_view name() const override { return "flag"; }
  Status read(const Leg& leg, uint32_t round) override;
  // Reads the flag of the arrived message.
  Status take() const { return read_flag(message.receive); }
};

// The second half of a sum: this rank's share goes to all ranks.
struct SharesMessage final : SumMessage {
  std::string_view name() const override { return "shares"; }
  Status prepare(Leg&, uint32_t) override { return {}; }
};

// The number of elements that all sections of `items` take in a summed message. [control]
uint64_t summed_elements(const Coding& coding, const std::vector<size_t>& items, uint32_t round);

// The key of a sum message: its items have one element type, one reduction and one kind of link,
// and their sums go to all ranks or to owners (owned_sums.hpp).
struct Summed {
  bool is_announced, is_owned;
  uint32_t dtype, reduction;
  auto operator<=>(const Summed&) const = default;
};

// These functions make a sum: as one message on one leg, or as two messages on two legs, a
// reduce-scatter and then an all-gather of each rank's share. [control]
Status lay_out_sum(BucketRun& bucket, Leg& leg, uint32_t round, const Summed& how,
                   std::vector<size_t> items);
Status lay_out_halves(BucketRun& bucket, Leg& begins, Leg& ends, uint32_t round, const Summed& how,
                      std::vector<size_t> items);
// Makes a message of `n_numbers` floats and a flag. [control]
std::unique_ptr<FlagMessage> make_flag(BucketRun& bucket, Coding& coding, uint64_t n_numbers);

}  // namespace penstock

// Messages that bring each rank's payloads by themselves: wire.hpp says how they lie in them.
#pragma once

#include "core/bucket/messages.hpp"

namespace penstock {

struct GatherMessage final : MessageRun {
  WorkMemory packed;  // announced ones whose counts vary: what of `send` goes, together
  std::vector<uint64_t> room_for;  // the most that each rank may send here

  std::string_view name() const override { return "gather"; }
  bool joins() const override { return false; }
  // An all-to-all has a part for each rank, all others one.
  uint32_t n_parts() const { return message.pattern == PENSTOCK_ALL_TO_ALL ? group_size() : 1; }
  // The items of what goes to a rank, and of what comes from it.
  const std::vector<size_t>& sent_to(uint32_t rank) const {
    if (by_owner.empty()) return items;
    return by_owner[message.pattern == PENSTOCK_ALL_TO_ALL ? rank : group_rank()];
  }
  const std::vector<size_t>& coming_from(uint32_t rank) const override {
    if (by_owner.empty()) return items;
    return by_owner[message.pattern == PENSTOCK_ALL_TO_ALL ? group_rank() : rank];
  }
  // Every part is as large as it may be, whatever has been sent.
  bool has_fixed_parts() const { return packed.bytes() == 0; }

  // Own payloads have their places in the send buffer, sections at capacity.
  Status before_encode(uint32_t round) override;
  // After encode: writes flags, kinds and counts of each part, and moves the sections together;
  // with exact counts, every part has its capacity. Sets the counts of the message.
  Status prepare(Leg& leg, uint32_t round) override;
  // The sections alone, into memory of their own: what may have to be given back stays where it is.
  Status pack(uint32_t round) override;
  // Payloads of all ranks lie in the receive buffer. Sets bucket.is_void if some rank flags it.
  // INVALID_PAYLOAD names rank and gradient. Of announced ones the headers have told it all.
  Status read(const Leg& leg, uint32_t round) override;

 private:
  std::byte* close_part(const std::vector<size_t>& items, uint32_t round, std::byte* part);
  Status read_part(uint32_t round, uint32_t rank);
};

// `by_owner`: of the items, those of each rank, on legs to owners and from them. [control]
Status lay_out_gather(BucketRun& bucket, Leg& leg, uint32_t round, std::vector<size_t> items,
                      std::vector<std::vector<size_t>> by_owner);

// Where sections of a part lie behind each other, at multiples of 8 bytes: in places for as many as
// may come where that is always so many, else for as many as have come.
class SectionPlaces {
 public:
  SectionPlaces(std::byte* part, bool exact) : at_(part), exact_(exact) {}
  std::byte* next(const penstock_section& section);
  std::byte* end() const { return at_; }

 private:
  std::byte* at_;
  bool exact_;
};

}  // namespace penstock

// Messages that bring the payloads of each rank separately. wire.hpp says how payloads lie in them.
#pragma once

#include "core/bucket/coded_indices.hpp"
#include "core/bucket/messages.hpp"

namespace penstock {

struct GatherMessage final : MessageRun {
  WorkMemory packed;  // announced ones whose counts vary: what of `send` goes, together
  std::vector<uint64_t> room_for;  // the most that each rank may send here
  // Where coded sections lie as plugins see them (coded_indices.hpp): in `send`, and in `receive`
  // those from each rank.
  uint64_t uncoded_offset = 0;
  std::vector<uint64_t> decoded_offsets;

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
  // Of an announced message: every part is as large as it may be, whatever has been sent.
  bool has_fixed_parts() const { return packed.bytes() == 0; }

  bool codes(const ItemRun& item, uint32_t round, size_t section) const;

  // Points own payloads at their places in the send buffer, with room for sections at capacity.
  Status before_encode(uint32_t round) override;
  // After encode: writes flags, kinds and counts of each part, codes indices, and closes the gaps
  // between sections; with exact counts each part stays at its offset. Sets the counts of the
  // message.
  Status prepare(Leg& leg, uint32_t round) override;
  // Sends the sections alone. If their counts vary it copies them together, because what may have
  // to be given back stays where it is.
  Status pack(uint32_t round) override;
  // Points payloads of all ranks into the receive buffer. Sets bucket.is_void if some rank flags
  // it. INVALID_PAYLOAD names rank and gradient. It does nothing for announced messages, whose
  // headers have told it all.
  Status read(const Leg& leg, uint32_t round) override;

 private:
  // Calls body(item, number of the section).
  template <typename Body>
  void each_section(const std::vector<size_t>& of, uint32_t round, const Body& body) const {
    for (const size_t position : of)
      for (size_t s = 0; s < coding->items[position].rounds[round].sections.size(); ++s)
        body(coding->items[position], s);
  }
  std::byte* close_part(const std::vector<size_t>& items, uint32_t round, std::byte* part);
  std::byte* close_section(ItemRun& item, uint32_t round, size_t s, std::byte* target);
  Status read_part(uint32_t round, uint32_t rank);
  void* own_indices(ItemRun& item, uint32_t round, size_t s, uint64_t count) const;
  // The sections of an item begin at `offset` of the part, and behind them the next item's; coded
  // ones are read to `decoded`.
  Status read_sections(ItemRun& item, uint32_t round, uint32_t rank, uint64_t& offset,
                       std::byte*& decoded);
};

// `by_owner`: of the items, those of each rank, on legs to owners and from them. [control]
Status lay_out_gather(BucketRun& bucket, Leg& leg, uint32_t round, std::vector<size_t> items,
                      std::vector<std::vector<size_t>> by_owner);

// Gives the address of each next section of a part, at multiples of 8 bytes. `exact`: it goes on by
// the capacity of a section, else by its count.
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

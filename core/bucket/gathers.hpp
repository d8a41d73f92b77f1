// Messages that bring the payloads of each rank separately. wire.hpp describes the format of
// payloads in a message.
#pragma once

#include "core/bucket/coded_indices.hpp"
#include "core/bucket/messages.hpp"

namespace penstock {

struct GatherMessage final : MessageRun {
  WorkMemory packed;  // announced messages with varying counts: `send` without its gaps
  std::vector<uint64_t> room_for;  // the most bytes that each rank may send to this rank
  // Offsets of the uncoded form of coded sections (coded_indices.hpp): one offset in `send`, and
  // for each sending rank an offset in `receive`.
  uint64_t uncoded_offset = 0;
  std::vector<uint64_t> decoded_offsets;

  std::string_view name() const override { return "gather"; }
  bool joins() const override { return false; }
  // An all-to-all has one part for each rank, other patterns have one part.
  uint32_t n_parts() const { return message.pattern == PENSTOCK_ALL_TO_ALL ? group_size() : 1; }
  // The items whose payloads go to a rank, and the items whose payloads come from a rank.
  const std::vector<size_t>& sent_to(uint32_t rank) const {
    if (by_owner.empty()) return items;
    return by_owner[message.pattern == PENSTOCK_ALL_TO_ALL ? rank : group_rank()];
  }
  const std::vector<size_t>& coming_from(uint32_t rank) const override {
    if (by_owner.empty()) return items;
    return by_owner[message.pattern == PENSTOCK_ALL_TO_ALL ? group_rank() : rank];
  }
  // For an announced message: whether every part takes its full capacity, however many entries it
  // has.
  bool has_fixed_parts() const { return packed.bytes() == 0; }

  bool codes(const ItemRun& item, uint32_t round, size_t section) const;

  // Points own payloads at their places in the send buffer. Every section has room for its
  // capacity.
  Status before_encode(uint32_t round) override;
  // Runs after encode: writes flags, kinds and counts of each part, codes indices, and closes the
  // gaps between sections. With exact counts each part stays at its offset. Sets the counts of the
  // message.
  Status prepare(Leg& leg, uint32_t round) override;
  // Prepares an announced message, which consists of sections alone. If their counts vary, it
  // copies the sections together into `packed`, because sections that may be given back must not
  // move.
  Status pack(uint32_t round) override;
  // Points the payloads of all ranks into the receive buffer. Sets bucket.is_void if the flags of
  // some rank require it. INVALID_PAYLOAD names rank and gradient; MISMATCH. It does nothing for
  // announced messages, because ReadHeaders has done this work.
  Status read(const Leg& leg, uint32_t round) override;
  // Like `read`, but only the payloads of the ranks from `first` to before `end`.
  Status read_ranks(uint32_t round, uint32_t first, uint32_t end);

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
  // `offset` is the start of the item's sections in the part, and becomes the start of the next
  // item's sections. Coded sections are decoded into `decoded`.
  Status read_sections(ItemRun& item, uint32_t round, uint32_t rank, uint64_t& offset,
                       std::byte*& decoded);
};

// Makes a message with buffers for the payloads of `ranks_at_once` ranks. If the group has more
// ranks, payload r has the place of payload r - ranks_at_once (slices.hpp). `by_owner`: on legs to
// or from owners, the items of each rank. [control]
Result<std::unique_ptr<GatherMessage>> make_gather(BucketRun& bucket, Leg& leg, uint32_t round,
                                                   std::vector<size_t> items,
                                                   std::vector<std::vector<size_t>> by_owner,
                                                   uint32_t ranks_at_once);
// Adds a message of all ranks to the leg. [control]
Status lay_out_gather(BucketRun& bucket, Leg& leg, uint32_t round, std::vector<size_t> items,
                      std::vector<std::vector<size_t>> by_owner);

// Gives the address of each next section of a part, at multiples of 8 bytes. `exact`: each section
// takes the bytes of its capacity, else the bytes of its count.
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

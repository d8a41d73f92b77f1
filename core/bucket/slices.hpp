// Gathers in slices of ranks. If the payloads of all ranks would take too much memory, the bucket
// receives and decodes the payloads of BucketRun::ranks_at_once ranks, then those of the next ranks
// in the same memory, and so on. Decode adds in the order of ranks, so the result has the bits of
// one gather.
//
// The first slice is sent with the other messages of its round, and each later slice by a stage of
// its own. The prologue says before the first slice whether the bucket is void, because otherwise
// decode would have changed states when a later slice says so.
#pragma once

#include "core/bucket/gathers.hpp"

namespace penstock {

// Whether the payloads of an item come in slices in this round. All ranks must answer alike.
bool comes_in_slices(const BucketRun& bucket, const Coding& coding, const ItemRun& item,
                     uint32_t round);
bool has_slices(const BucketRun& bucket, const Coding& coding);

// The payloads of the ranks from `first` to before `end`. The other ranks send nothing in it.
struct GatherSlice final : MessageRun {
  // The buffers, and the format of all slices. It is never sent itself.
  std::shared_ptr<GatherMessage> whole;
  uint32_t first = 0, end = 0;

  bool is_first() const { return first == 0; }
  bool is_last() const { return end == group_size(); }
  bool brings(uint32_t rank) const { return first <= rank && rank < end; }

  std::string_view name() const override { return "gather"; }
  bool joins() const override { return false; }
  Status before_encode(uint32_t round) override;
  Status prepare(Leg& leg, uint32_t round) override;
  void echo(uint32_t round) override;
  // Reads the first slice; the stage of a later slice calls `take`.
  Status read(const Leg& leg, uint32_t round) override;
  Status take(uint32_t round) { return whole->read_ranks(round, first, end); }
};

// The slices of a round, in the order of ranks. [control]
Result<std::vector<std::unique_ptr<MessageRun>>> make_slices(BucketRun& bucket, Leg& leg,
                                                             uint32_t round,
                                                             std::vector<size_t> items);

// Adds the stages that send, read and decode all slices after the first. [control]
void add_later_slices(Program& program, Leg& leg, uint32_t round);

}  // namespace penstock

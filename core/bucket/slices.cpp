#include "core/bucket/slices.hpp"

#include "core/bucket/coded.hpp"
#include "core/bucket/exchange.hpp"
#include "core/comm/channel.hpp"

#include <algorithm>
#include <cstring>

namespace penstock {
namespace {

// Sends a later slice and reads the payloads that arrive.
class ExchangeSlice final : public RoundStage {
 public:
  ExchangeSlice(Leg& leg, uint32_t round, GatherSlice& slice)
      : RoundStage(leg, round, "exchange", Part::exchange, Wait::messages), slice_(slice) {}
  bool runs(const BucketRun& bucket) const override { return leg_.goes(bucket); }
  bool waits(const BucketRun& bucket) const override { return !bucket.context.echoes; }

  Status begin(BucketRun& bucket) override {
    PENSTOCK_TRY(slice_.prepare(leg_, round_));
    if (bucket.context.echoes) {
      slice_.echo(round_);
      return {};
    }
    bucket.begin_transfers(1);
    bucket.exchange_bytes = bytes_handed_over(slice_.message, slice_.group_size());
    submit(bucket, slice_);
    return {};
  }
  Status end(BucketRun&) override { return slice_.take(round_); }

 private:
  GatherSlice& slice_;
};

// Adds the payloads of a later slice to the result.
class DecodeSlice final : public RoundStage {
 public:
  DecodeSlice(Leg& leg, uint32_t round, const GatherSlice& slice)
      : RoundStage(leg, round, "decode", Part::decode) {
    for (CompressorCall& of_first : leg.coding->decode_calls)
      if (of_first.round == round && (of_first.flags & PENSTOCK_DECODE_LAST) == 0)
        add_call(of_first, slice);
  }

  Status begin(BucketRun& bucket) override {
    for (Later& later : calls_) {
      PENSTOCK_TRY(call_decode(bucket, *leg_.coding, later.call));
      later.of_first.took_us += later.call.took_us;
    }
    return {};
  }

 private:
  struct Later {
    CompressorCall& of_first;
    CompressorCall call;
  };

  // A call like that of the first slice. The payloads of all slices have the same places, and the
  // last slice may have fewer.
  void add_call(CompressorCall& of_first, const GatherSlice& slice) {
    CompressorCall call;
    call.compressor = of_first.compressor;
    call.place = of_first.place;
    call.round = of_first.round;
    call.scales_result = of_first.scales_result;
    call.positions = of_first.positions;
    call.items = of_first.items;
    call.n_ranks = slice.end - slice.first;
    call.flags = slice.is_last() ? uint32_t{PENSTOCK_DECODE_LAST} : 0u;
    for (size_t i = 0; i < call.items.size(); ++i)
      for (uint64_t rank = 0; rank < call.n_ranks; ++rank)
        call.received.push_back(of_first.received[i * of_first.n_ranks + rank]);
    calls_.push_back({of_first, std::move(call)});
  }

  std::vector<Later> calls_;
};

}  // namespace

bool comes_in_slices(const BucketRun& bucket, const Coding& coding, const ItemRun& item,
                     uint32_t round) {
  const RoundNeed& need = item.rounds[round];
  return coding.links->group.size() > bucket.ranks_at_once &&
         need.combine == PENSTOCK_COMBINE_GATHER &&
         (need.flags & PENSTOCK_ROUND_ALL_PAYLOADS) == 0 && !coding.to_owners && !coding.of_sums &&
         !(item.on_composite && round + 1 == item.rounds.size()) && item.place().works_at_once();
}

bool has_slices(const BucketRun& bucket, const Coding& coding) {
  for (const ItemRun& item : coding.items)
    for (uint32_t round = 0; round < item.rounds.size(); ++round)
      if (comes_in_slices(bucket, coding, item, round)) return true;
  return false;
}

Status GatherSlice::before_encode(uint32_t round) {
  return is_first() ? whole->before_encode(round) : Status();
}

Status GatherSlice::prepare(Leg& leg, uint32_t round) {
  if (is_first()) PENSTOCK_TRY(whole->prepare(leg, round));
  message.count = brings(group_rank()) ? whole->message.count : 0;
  for (uint32_t rank = 0; rank < group_size(); ++rank)
    whole->receive_counts[rank] = brings(rank) ? whole->room_for[rank] : 0;
  return {};
}

void GatherSlice::echo(uint32_t) {
  for (uint32_t rank = first; rank < end; ++rank) {
    whole->receive_counts[rank] = whole->message.count;
    std::memcpy(whole->receive.data() + whole->receive_offsets[rank], whole->send.data(),
                whole->message.count);
  }
}

Status GatherSlice::read(const Leg&, uint32_t round) {
  return is_first() ? take(round) : Status();
}

Result<std::vector<std::unique_ptr<MessageRun>>> make_slices(BucketRun& bucket, Leg& leg,
                                                             uint32_t round,
                                                             std::vector<size_t> items) {
  std::vector<std::unique_ptr<MessageRun>> slices;
  PENSTOCK_ASSIGN(std::shared_ptr<GatherMessage> whole,
                  make_gather(bucket, leg, round, std::move(items), {}, bucket.ranks_at_once));
  const uint32_t size = whole->group_size();
  for (uint32_t first = 0, end = 0; first < size; first = end) {
    end = std::min(size - first, bucket.ranks_at_once) + first;
    auto slice = make_message<GatherSlice>(bucket, *leg.coding, *whole->link, PENSTOCK_ALL_GATHER,
                                           PENSTOCK_UINT8);
    slice->whole = whole;
    slice->first = first;
    slice->end = end;
    slice->has_own_stage = !slice->is_first();
    penstock_message& c = slice->message;
    c.flags = whole->message.flags;
    c.send = whole->send.data();
    c.count = slice->brings(slice->group_rank()) ? whole->message.count : 0;
    c.receive = whole->receive.data();
    c.receive_counts = whole->receive_counts.data();
    c.receive_offsets = whole->receive_offsets.data();
    slices.push_back(std::move(slice));
  }
  return slices;
}

void add_later_slices(Program& program, Leg& leg, uint32_t round) {
  for (const auto& message : leg.messages[round]) {
    auto* const slice = dynamic_cast<GatherSlice*>(message.get());
    if (slice == nullptr || slice->is_first()) continue;
    program.push_back(std::make_unique<ExchangeSlice>(leg, round, *slice));
    program.push_back(std::make_unique<DecodeSlice>(leg, round, *slice));
  }
}

}  // namespace penstock

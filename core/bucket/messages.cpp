#include "core/bucket/messages.hpp"

#include "core/bucket/announcement.hpp"
#include "core/bucket/composites.hpp"
#include "core/bucket/gathers.hpp"
#include "core/bucket/owned_sums.hpp"
#include "core/bucket/slices.hpp"
#include "core/bucket/sums.hpp"

#include <cstring>
#include <map>

namespace penstock {
namespace {

// The dtype in which a round of an item is summed.
Result<uint32_t> summed_dtype(const ItemRun& item, uint32_t round) {
  const RoundNeed& need = item.rounds[round];
  if (need.sections.empty()) return uint32_t{PENSTOCK_FLOAT32};
  for (const SectionNeed& section : need.sections)
    if (section.dtype != need.sections.front().dtype)
      return internal("compressor '{}' sums sections of different dtypes in one round",
                      item.compressor->name());
  return need.sections.front().dtype;
}

}  // namespace

void MessageRun::echo(uint32_t) {
  const uint64_t bytes = message.count;
  for (size_t rank = 0; rank < receive_counts.size(); ++rank) {
    std::memcpy(receive.data() + receive_offsets[rank], send.data(), bytes);
    receive_counts[rank] = bytes;
  }
  if (receive_counts.empty() && receive.bytes() != 0)
    std::memcpy(receive.data(), send.data(), receive.bytes());
}

void MessageRun::finished(Status status) {
  bucket->message_finished(std::move(status));
}

void take_items(MessageRun& message, std::vector<size_t> items) {
  message.items = std::move(items);
  for (const size_t position : message.items) {
    WorkPlace& place = message.coding->items[position].place();
    if (!place.works_at_once()) message.place = &place;
  }
}

void begin_message(MessageRun& message, BucketRun& bucket, Coding& coding, Link& link,
                   uint32_t pattern, uint32_t dtype) {
  message.bucket = &bucket;
  message.coding = &coding;
  message.link = &link;
  message.place = &bucket.context.host;
  message.limit_us = bucket.context.limit_us;
  penstock_message& c = message.message;
  c.struct_size = sizeof c;
  c.pattern = pattern;
  c.reduction = PENSTOCK_REDUCE_SUM;
  c.dtype = dtype;
  c.leg = coding.leg;
  c.step = &coding.step;
  c.exec = &bucket.context.host.exec();
}

Link& link_of(const Coding& coding, const std::vector<size_t>& items, uint32_t round) {
  const ItemRun& first = coding.items[items.front()];
  return first.place().link_of(coding, first, round);
}

Status lay_out_round(BucketRun& bucket, Leg& begins, Leg& ends, StateStore& states,
                     uint32_t round) {
  Coding& coding = *begins.coding;
  std::map<Summed, std::vector<size_t>> sums;
  std::vector<size_t> gathers, sliced, sparse, announced;
  const bool to_owners = coding.to_owners || coding.of_sums;
  std::vector<std::vector<size_t>> by_owner(to_owners ? coding.links->group.size() : 0);
  for (size_t i = 0; i < coding.items.size(); ++i) {
    const ItemRun& item = coding.items[i];
    if (item.rounds.size() <= round || (!item.encodes && !item.decodes)) continue;
    const RoundNeed& need = item.rounds[round];
    const bool is_announced = item.place().link_of(coding, item, round).is_announced;
    if (need.combine == PENSTOCK_COMBINE_SUM) {
      // A rank that adds to a sum must receive it, unless it is for the owner alone.
      if (item.encodes != item.decodes && !item.sum_is_owned)
        return internal("gradient '{}' is summed in round {} by ranks that {} it",
                        item.gradient->name, round,
                        item.encodes ? "do not decode" : "do not encode");
      PENSTOCK_ASSIGN(const uint32_t dtype, summed_dtype(item, round));
      const uint32_t reduction =
          item.arrives_as_mean ? uint32_t{PENSTOCK_REDUCE_MEAN} : need.reduction;
      sums[{is_announced, item.sum_is_owned, dtype, reduction}].push_back(i);
    } else if (is_announced) {
      announced.push_back(i);
    } else if (item.on_composite && round + 1 == item.rounds.size()) {
      sparse.push_back(i);
    } else if (comes_in_slices(bucket, coding, item, round)) {
      sliced.push_back(i);
    } else {
      gathers.push_back(i);
      if (to_owners) by_owner[item.owner].push_back(i);
    }
  }
  bool flagged = coding.prologue != nullptr || round > 0 || !gathers.empty() || !announced.empty();
  for (auto& [key, items] : sums) {
    if (key.is_owned)
      PENSTOCK_TRY(lay_out_owned_sum(bucket, begins, round, key, std::move(items)));
    else if (!begins.kind.decodes)
      PENSTOCK_TRY(lay_out_halves(bucket, begins, ends, round, key, std::move(items)));
    else
      PENSTOCK_TRY(lay_out_sum(bucket, begins, round, key, std::move(items)));
    const MessageRun& message = *ends.messages[round].back();
    flagged = flagged || key.is_announced || message.has_flag ||
              coding.items[message.items.front()].of->is_never_void;
  }
  if (!gathers.empty())
    PENSTOCK_TRY(lay_out_gather(bucket, ends, round, std::move(gathers), std::move(by_owner)));
  if (!announced.empty())
    PENSTOCK_TRY(lay_out_gather(bucket, ends, round, std::move(announced), {}));
  std::vector<std::unique_ptr<MessageRun>> slices;
  if (!sliced.empty()) {
    PENSTOCK_ASSIGN(slices, make_slices(bucket, ends, round, std::move(sliced)));
    ends.messages[round].push_back(std::move(slices.front()));
  }
  if (!sparse.empty())
    PENSTOCK_TRY(lay_out_composite(bucket, ends, states, round, std::move(sparse)));
  if (!flagged && !ends.messages[round].empty())
    ends.messages[round].push_back(make_flag(bucket, coding, 0));
  lay_out_announcement(bucket, ends, round);
  // Later slices are sent after all other messages of the round.
  for (size_t later = 1; later < slices.size(); ++later)
    ends.messages[round].push_back(std::move(slices[later]));
  return {};
}

}  // namespace penstock

#include "core/bucket/means.hpp"

#include "core/bucket/bucket.hpp"
#include "core/comm/channel.hpp"
#include "core/tensor/elements.hpp"

#include <penstock/mean.h>

#include <algorithm>

namespace penstock {
namespace {

bool takes_mean(const Link& link, uint32_t dtype) {
  if (link.channel == nullptr || link.channel->table == nullptr) return false;
  const uint64_t dtypes = mean_dtypes(*link.channel->table, link.channel->instance);
  return (dtypes & PENSTOCK_DTYPE_BIT(dtype)) != 0;
}

// Whether half of a payload decodes to half of the result.
bool decodes_means(const CompressorInstance& compressor, const penstock_compressor_need& need,
                   uint32_t dtype) {
  if ((need.flags & PENSTOCK_NEED_LINEAR) != 0) return true;
  if (!PENSTOCK_HAS_MEMBER(compressor.table(), penstock_compressor, extension)) return false;
  const void* const found = compressor->extension(compressor.self(), str(PENSTOCK_MEAN_EXTENSION));
  return (mean_dtypes(found) & PENSTOCK_DTYPE_BIT(dtype)) != 0;
}

}  // namespace

bool arrives_as_mean(const BucketRun& bucket, const Coding& coding, const ItemRun& item,
                     const penstock_compressor_need& compressor) {
  const bool rest_follows = (item.for_compressor.flags & PENSTOCK_ITEM_REST_FOLLOWS) != 0;
  if (bucket.context.result_is_sum || rest_follows || item.rounds.size() != 1) return false;
  const RoundNeed& round = item.rounds[0];
  if (round.combine != PENSTOCK_COMBINE_SUM || round.reduction != PENSTOCK_REDUCE_SUM ||
      round.sections.empty() || !item.wants_mean())
    return false;
  const uint32_t dtype = round.sections[0].dtype;  // all its sections have this dtype
  if (dtype != PENSTOCK_FLOAT16 && dtype != PENSTOCK_BFLOAT16) return false;
  return takes_mean(item.place().link_of(coding, item, 0), dtype) &&
         decodes_means(*item.compressor, compressor, dtype);
}

bool averages_host(const MessageRun& message) {
  const auto is_mean = [&](size_t position) {
    return message.coding->items[position].arrives_as_mean;
  };
  return takes_mean(*message.link, message.message.dtype) &&
         std::all_of(message.by_owner.begin(), message.by_owner.end(), [&](const auto& items) {
           return std::all_of(items.begin(), items.end(), is_mean);
         });
}

Status weigh_shares(BucketRun& bucket, MessageRun& message) {
  if (message.group_rank() >= message.by_owner.size()) return {};
  const Coding& coding = *message.coding;
  const bool is_averaged = message.message.reduction == PENSTOCK_REDUCE_MEAN;
  const double hosts = coding.links->group.size();
  const double weight = hosts * (is_averaged ? message.group_size() : 1) / bucket.context.world;
  if (weight == 1) return {};
  for (const size_t position : message.by_owner[message.group_rank()]) {
    const ItemRun& item = coding.items[position];
    if (!item.arrives_as_mean || item.range.numel == 0) continue;
    PENSTOCK_TRY(message.place->scale(item.dtype, item.share, item.range.numel, weight));
  }
  return {};
}

}  // namespace penstock

// State that was saved by another number of ranks.
#include "core/state/state_store.hpp"
#include "core/tensor/dtype.hpp"

#include <algorithm>
#include <cstring>

namespace penstock {
namespace {

constexpr std::string_view kSummed = "taken over, their sum over ranks is what it was";
constexpr std::string_view kDropped = "dropped, as their plugin declares";
constexpr std::string_view kEqual = "equal in all shards, and now here";
constexpr std::string_view kTaken = "taken from one shard each";

template <typename Value>
void add(std::string_view source, std::byte* target) {
  for (size_t at = 0; at + sizeof(Value) <= source.size(); at += sizeof(Value)) {
    Value one, sum;
    std::memcpy(&one, source.data() + at, sizeof one);
    std::memcpy(&sum, target + at, sizeof sum);
    sum += one;
    std::memcpy(target + at, &sum, sizeof sum);
  }
}

std::string_view class_name(uint32_t state_class) {
  switch (state_class) {
    case PENSTOCK_STATE_MASS:
      return "mass";
    case PENSTOCK_STATE_LOCAL:
      return "local";
    case PENSTOCK_STATE_REPLICATED:
      return "replicated";
    default:
      return "soft";
  }
}

}  // namespace

// Old rank r's mass goes to new rank r modulo their number: to one, and to no other.
Result<std::string_view> StateStore::resize(const StateKey& key, const Claimed& claimed,
                                            std::span<const std::optional<std::string_view>> saved,
                                            uint32_t rank, uint32_t world, std::byte* target) {
  const auto copy = [&](std::string_view data) {
    if (!data.empty()) std::memcpy(target, data.data(), data.size());
  };
  if (claimed.state_class == PENSTOCK_STATE_SOFT) {
    if (const auto& one = saved[rank % saved.size()]) copy(*one);
    return kTaken;
  }
  for (size_t from = 0; from < saved.size(); ++from)
    if (!saved[from])
      return mismatch("the shard of rank {} lacks {}, which others have", from, key.text());
  if (claimed.state_class == PENSTOCK_STATE_REPLICATED) {
    for (size_t from = 1; from < saved.size(); ++from)
      if (*saved[from] != *saved[0])
        return mismatch("{} differs between the shards of ranks 0 and {}, expected equal bits",
                        key.text(), from);
    copy(*saved[0]);
    return kEqual;
  }
  if (claimed.on_resize == PENSTOCK_RESIZE_DROP) return kDropped;
  const uint32_t dtype = claimed.tensor->dtype;
  if (claimed.on_resize != PENSTOCK_RESIZE_SUM ||
      (dtype != PENSTOCK_FLOAT32 && dtype != PENSTOCK_FLOAT64))
    return failed_precondition(
        "{} cannot be loaded by another number of ranks ({} saved, {} load it): {}; load it on as "
        "many ranks, or go on from the parameters alone",
        key.text(), saved.size(), world,
        claimed.on_resize == PENSTOCK_RESIZE_SUM
            ? fmt::format("{} is not summed", dtype_name(dtype))
            : "its plugin declares that it is not");
  for (size_t from = rank; from < saved.size(); from += world)
    dtype == PENSTOCK_FLOAT32 ? add<float>(*saved[from], target)
                              : add<double>(*saved[from], target);
  return kSummed;
}

Result<std::string> StateStore::read_shards(std::span<const std::string_view> shards, uint32_t rank,
                                            uint32_t world) {
  std::map<StateKey, std::vector<std::optional<std::string_view>>> all;
  for (size_t from = 0; from < shards.size(); ++from) {
    PENSTOCK_ASSIGN(const std::vector<Saved> parsed, parse(shards[from]));
    for (const Saved& saved : parsed) {
      PENSTOCK_TRY(
          place_of(saved).status().with_context(fmt::format("the shard of rank {}", from)));
      std::vector<std::optional<std::string_view>>& of_all = all[saved.key];
      of_all.resize(shards.size());
      of_all[from] = saved.data;
    }
  }
  PENSTOCK_TRY(zero());
  std::map<std::string, uint64_t> done;
  for (const auto& [key, saved] : all) {
    const Claimed& claimed = tensors_.at(key);
    StateMemory& memory = claimed.tensor->current();
    Buffer image(memory.is_on_host() ? 0 : memory.bytes());
    std::byte* target = memory.is_on_host() ? memory.data() : image.data();
    PENSTOCK_ASSIGN(const std::string_view what, resize(key, claimed, saved, rank, world, target));
    if (!memory.is_on_host()) PENSTOCK_TRY(memory.write({image.data(), image.bytes()}));
    ++done[fmt::format("{} '{}' of {}: {{}} tensors, {}", class_name(claimed.state_class), key.name,
                       key.owner, what)];
  }
  std::string said;
  for (const auto& [line, count] : done) said += fmt::format(fmt::runtime(line), count) + "\n";
  return said;
}

}  // namespace penstock

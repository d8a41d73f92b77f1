// State that was saved by another number of ranks.
#include "core/state/resize.hpp"

#include "core/state/state_store.hpp"
#include "core/tensor/dtype.hpp"

#include <algorithm>
#include <cstring>

namespace penstock {
namespace {

constexpr std::string_view kSummed = "taken over, their sum over ranks is what it was";
constexpr std::string_view kAveraged = "taken over, their mean over ranks is what it was";
constexpr std::string_view kDropped = "dropped, as their plugin declares";
constexpr std::string_view kReshaped = "dropped, as they have another shape on this many ranks";
constexpr std::string_view kEqual = "equal in all shards, and now here";
constexpr std::string_view kTaken = "taken from one shard each";

// Of float32 too the sum is rounded once.
template <typename Value>
void take_share_of(std::span<const std::optional<std::string_view>> saved, const Resize& to,
                   double worth, std::span<std::byte> target) {
  for (size_t at = 0; at + sizeof(Value) <= target.size(); at += sizeof(Value)) {
    double sum = 0;
    for (size_t from = to.rank; from < saved.size(); from += to.world) {
      if (!saved[from]) continue;
      Value one;
      std::memcpy(&one, saved[from]->data() + at, sizeof one);
      sum += one;
    }
    const auto share = static_cast<Value>(sum * worth);
    std::memcpy(target.data() + at, &share, sizeof share);
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

// Kinds of state and what became of them, with how many tensors that were.
class Account {
 public:
  void add(const StateKey& key, uint32_t state_class, std::string_view what) {
    ++done_[fmt::format("{} '{}' of {}: {{}} tensors, {}", class_name(state_class), key.name,
                        key.owner, what)];
  }
  std::string text() const {
    std::string said;
    for (const auto& [line, count] : done_) said += fmt::format(fmt::runtime(line), count) + "\n";
    return said;
  }

 private:
  std::map<std::string, uint64_t> done_;
};

}  // namespace

void take_share(std::span<const std::optional<std::string_view>> saved, uint32_t dtype,
                const Resize& to, double worth, std::span<std::byte> target) {
  dtype == PENSTOCK_FLOAT32 ? take_share_of<float>(saved, to, worth, target)
                            : take_share_of<double>(saved, to, worth, target);
}

Result<std::string_view> StateStore::resize(const StateKey& key, const Claimed& claimed,
                                            std::span<const std::optional<std::string_view>> saved,
                                            const Resize& to, std::byte* target) {
  const auto copy = [&](std::string_view data) {
    if (!data.empty()) std::memcpy(target, data.data(), data.size());
  };
  if (claimed.state_class == PENSTOCK_STATE_SOFT) {
    if (const auto& one = saved[to.rank % saved.size()]) copy(*one);
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
        key.text(), saved.size(), to.world,
        claimed.on_resize == PENSTOCK_RESIZE_SUM
            ? fmt::format("{} is not summed", dtype_name(dtype))
            : "its plugin declares that it is not");
  // Local state is owed to nobody, so it has no worth to keep.
  const bool averages = to.averages && claimed.state_class == PENSTOCK_STATE_MASS;
  take_share(saved, dtype, to, averages ? to.worth() : 1, {target, saved[0]->size()});
  return averages ? kAveraged : kSummed;
}

bool StateStore::is_soft(const StateKey& key) const {
  const auto found = tensors_.find(key);
  return found != tensors_.end() && found->second.state_class == PENSTOCK_STATE_SOFT;
}

Result<std::string> StateStore::read_shards(std::span<const std::string_view> shards,
                                            const Resize& to) {
  std::map<StateKey, std::vector<std::optional<std::string_view>>> all;
  Account done;
  std::map<StateKey, bool> reshaped;
  for (size_t from = 0; from < shards.size(); ++from) {
    PENSTOCK_ASSIGN(const std::vector<Saved> parsed, parse(shards[from]));
    for (const Saved& saved : parsed) {
      const Status fits = place_of(saved).status();
      if (!fits.ok() && is_soft(saved.key)) {
        if (reshaped.try_emplace(saved.key, true).second)
          done.add(saved.key, PENSTOCK_STATE_SOFT, kReshaped);
        continue;
      }
      PENSTOCK_TRY(fits.with_context(fmt::format("the shard of rank {}", from)));
      std::vector<std::optional<std::string_view>>& of_all = all[saved.key];
      of_all.resize(shards.size());
      of_all[from] = saved.data;
    }
  }
  PENSTOCK_TRY(zero());
  for (const auto& [key, saved] : all) {
    if (reshaped.count(key) != 0) continue;
    const Claimed& claimed = tensors_.at(key);
    StateMemory& memory = claimed.tensor->current();
    Buffer image(memory.is_on_host() ? 0 : memory.bytes());
    std::byte* target = memory.is_on_host() ? memory.data() : image.data();
    PENSTOCK_ASSIGN(const std::string_view what, resize(key, claimed, saved, to, target));
    if (!memory.is_on_host()) PENSTOCK_TRY(memory.write({image.data(), image.bytes()}));
    done.add(key, claimed.state_class, what);
  }
  return done.text();
}

std::string StateStore::left_by(const StateStore& next) const {
  Account left;
  for (const auto& [key, claimed] : tensors_)
    if (next.tensors_.count(key) == 0)
      left.add(key, claimed.state_class,
               claimed.state_class == PENSTOCK_STATE_MASS
                   ? "handed over to the gradients of the next step: the new plan keeps none of it"
                   : "dropped: the new plan has no place for them");
  return left.text();
}

}  // namespace penstock

// Loading what another number of ranks has saved.

#include "core/base/hash.hpp"
#include "core/set/set.hpp"

#include <algorithm>

namespace penstock {
namespace {

// One of each rank, all of one step.
Status check_whole(const std::vector<SavedSet>& saved, std::string_view set) {
  const SavedSet& first = saved.front();
  for (size_t i = 0; i < saved.size(); ++i) {
    const SavedSet& one = saved[i];
    if (one.world != saved.size() || one.rank != i || one.step != first.step)
      return mismatch(
          "shard {} of {} for set '{}' was saved by rank {} of {} at step {}, expected rank {} of "
          "{} at step {}: give those of all ranks, in their order, of one step",
          i, saved.size(), set, one.rank, one.world, one.step, i, saved.size(), first.step);
    if (one.plan != first.plan)
      return mismatch("shards 0 and {} for set '{}' have different plans: they are of two runs", i,
                      set);
  }
  return {};
}

}  // namespace

Result<std::vector<SavedSet>> Set::read_shards(std::span<const std::string_view> shards) {
  PENSTOCK_TRY(loadable());
  if (shards.empty()) return invalid_argument("set '{}' got no shard to load", name);
  std::vector<SavedSet> saved;
  for (size_t i = 0; i < shards.size(); ++i) {
    Result<SavedSet> one = read_saved(shards[i], name, gradients_.size());
    if (!one.ok()) return one.status().with_context(fmt::format("shard {}", i));
    saved.push_back(std::move(*one));
  }
  PENSTOCK_TRY(check_whole(saved, name));
  if (saved.size() == world) return saved;
  for (const SavedSet& one : saved)
    for (size_t i = 0; i < one.carries.size(); ++i)
      if (!one.carries[i].empty())
        return failed_precondition(
            "the shard of rank {} keeps what a switch has left to add to gradient '{}', which {} "
            "ranks cannot share: save one step later",
            one.rank, gradients_[i]->name, world);
  return saved;
}

Status Set::load_shards(std::span<const std::string_view> shards, std::string& said) {
  PENSTOCK_TRY(services_.state());
  Result<std::vector<SavedSet>> saved = read_shards(shards);
  Result<std::shared_ptr<const Fitting>> fitting = saved.status();
  std::string same;
  if (saved.ok()) {
    fitting = fit(saved->front().step);
    for (const std::string_view shard : shards) same += hash_text(hash64(shard)) + '\n';
  }
  PENSTOCK_TRY(agree_to_go_on("shards to load", fitting.status()));
  PENSTOCK_TRY(services_.control.agree(fmt::format("shards for set {}", name), same, group_.ranks(),
                                       meeting_us_));
  if (shards.size() == world) {
    said = fmt::format("all: as {} ranks have saved it, each its own\n", world);
    return load(shards[rank]);
  }
  PENSTOCK_ASSIGN(Plan plan, agree_on_plan(*fitting.value()));
  for (const planning::Bucket& bucket : plan.buckets)
    if (has_owners(bucket.route))
      return failed_precondition(
          "set '{}': on route '{}' ranks own parts that {} ranks had cut otherwise; load it on as "
          "many ranks",
          name, route_name(bucket.route), shards.size());
  PENSTOCK_TRY(open_levels_of(plan));
  Result<std::unique_ptr<Works>> works =
      Works::make(*this, *fitting, std::move(plan), gradients_, nullptr);
  Status status = works.status();
  if (status.ok()) {
    std::vector<std::string_view> tensors;
    for (const SavedSet& one : *saved) tensors.push_back(one.tensors);
    Result<std::string> did = works.value()->states().read_shards(tensors, rank, world);
    status = did.status();
    if (did.ok()) said = std::move(*did);
  }
  PENSTOCK_TRY(agree_to_go_on("loaded shards", status));
  go_on_from(saved->front().step, std::move(*works), std::vector<Buffer>(gradients_.size()));
  return {};
}

}  // namespace penstock

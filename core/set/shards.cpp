// Loading what another number of ranks has saved.

#include "core/base/hash.hpp"
#include "core/base/out_of_memory.hpp"
#include "core/set/set.hpp"

#include <algorithm>
#include <utility>

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
  return saved;
}

// With the plan that they were saved with everything has a place. No step runs with it, so it need
// not fit the frontend's buckets.
Result<std::unique_ptr<Works>> Set::works_of_shards(const std::vector<SavedSet>& saved,
                                                    const std::shared_ptr<const Fitting>& fitting,
                                                    const Resize& to, std::string& said) {
  PENSTOCK_ASSIGN(Plan plan, plan_from_bytes(saved.front().plan));
  PlanFacts facts = plan_facts_of(*fitting);
  facts.buckets_are_given = false;
  PENSTOCK_TRY(check_saved_plan(plan, facts, *fitting));
  for (const planning::Bucket& bucket : plan.buckets)
    if (has_owners(bucket.route))
      return failed_precondition(
          "set '{}': on route '{}' ranks own parts that {} ranks had cut otherwise; load it on as "
          "many ranks",
          name, route_name(bucket.route), saved.size());
  PENSTOCK_ASSIGN(auto works, Works::make(*this, fitting, std::move(plan), gradients_, nullptr));
  std::vector<std::string_view> tensors;
  for (const SavedSet& one : saved) tensors.push_back(one.tensors);
  PENSTOCK_ASSIGN(said, works->states().read_shards(tensors, to));
  return works;
}

// A plan made anew, for this number of ranks. What it has no place for is handed over as between
// two steps of a run: a compressor that was chosen may not be chosen any more.
Status Set::change_plan_of_shards(const std::shared_ptr<const Fitting>& fitting,
                                  std::string& said) {
  PENSTOCK_ASSIGN(Plan plan, agree_on_plan(*fitting));
  if (plan == works_->plan()) {
    works_->explain(std::move(plan.explanation));
    return carries_.join(*works_);
  }
  PENSTOCK_ASSIGN(std::unique_ptr<Works> next, agree_on_works(fitting, std::move(plan)));
  PENSTOCK_TRY(hand_over(*next));
  said += works_->states().left_by(next->states());
  // What is queued of residents may use states that go with this plan.
  if (residents_ != nullptr) PENSTOCK_TRY(residents_->drain(services_.limits.end_us));
  install(std::move(next));
  return {};
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
  const Resize to{rank, world, shards.size(), !result_is_sum};
  Carries::Kept carries;
  Result<std::unique_ptr<Works>> works =
      unless_out_of_memory([&]() -> Result<std::unique_ptr<Works>> {
        PENSTOCK_ASSIGN(auto made, works_of_shards(*saved, *fitting, to, said));
        PENSTOCK_ASSIGN(carries, carries_.read_shards(*saved, to, said));
        return made;
      });
  PENSTOCK_TRY(agree_to_go_on("loaded shards", works.status()));
  return go_on_from_shards(saved->front().step, *fitting, std::move(*works), std::move(carries),
                           said);
}

// Where it fails, it does on every rank, and all is as it was.
Status Set::go_on_from_shards(uint64_t saved_step, const std::shared_ptr<const Fitting>& fitting,
                              std::unique_ptr<Works> works, Carries::Kept carries,
                              std::string& said) {
  std::unique_ptr<Works> before = install(std::move(works));
  Carries::Kept carries_before = carries_.replace(std::move(carries));
  std::string where;
  const Status status = unless_out_of_memory([&]() -> Status {
    PENSTOCK_TRY(change_plan_of_shards(fitting, said));
    where = where_to_go_on(saved_step, works_->plan(), " of a loaded state", carries_.names());
    return {};
  });
  if (!status.ok()) {
    install(std::move(before));
    carries_.replace(std::move(carries_before));
    return status;
  }
  step_.drop();
  step.index = saved_step;
  need_agreement(std::move(where), saved_step);
  begin_attempt();
  return {};
}

}  // namespace penstock

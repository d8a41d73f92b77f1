#include "core/set/saver.hpp"

#include "core/base/hash.hpp"
#include "core/base/unless_thrown.hpp"

#include <fmt/format.h>

#include <utility>

namespace penstock {
namespace {

constexpr uint64_t kPatienceUs = 1'000'000;

}  // namespace

Status Saver::save(std::string& out) const {
  const CompiledPlan& compiled = uses_.plans.compiled();
  // Without a second generation, the current states may already contain the step under way.
  if (uses_.step.under_way() && !set_.forgets && compiled.states().keeps_anything())
    return failed_precondition(
        "set '{}' is saved in the middle of step {}, and [runtime] forget = false: save after the "
        "optimizer's step, or remove that line",
        set_.name, set_.step.index);
  std::string tensors;
  PENSTOCK_TRY(compiled.states().write(tensors));
  const std::string plan = plan_bytes(compiled.plan());
  write_saved({.name = set_.name,
               .rank = set_.rank,
               .world = set_.world,
               .step = set_.step.index,
               .plan = plan,
               .tensors = tensors,
               .carries = uses_.carries.views()},
              out);
  return {};
}

Status Saver::load(std::string_view bytes) {
  PENSTOCK_TRY(services_.state());
  PENSTOCK_ASSIGN(const SavedSet saved,
                  read_saved(bytes, set_.name, uses_.declaration.gradients().size()));
  // The name may differ, because states belong to gradients.
  if (saved.rank != set_.rank || saved.world != set_.world)
    return mismatch(
        "this state was saved by rank {} of {} of set '{}', it cannot be loaded by rank {} of {} "
        "of set '{}'; to load the state of another number of ranks, give the states of all ranks "
        "to penstock_set_load_shards, in Python to load_compression_shards or load_shards",
        saved.rank, saved.world, saved.name, set_.rank, set_.world, set_.name);
  PENSTOCK_ASSIGN(Plan plan, plan_from_bytes(saved.plan));
  PENSTOCK_TRY(loadable());
  PENSTOCK_ASSIGN(std::unique_ptr<CompiledPlan> compiled,
                  make_compiled_plan(saved, std::move(plan)));
  PENSTOCK_ASSIGN(Carries::Kept carries, uses_.carries.read(saved));
  go_on_from({saved.step, std::move(compiled), std::move(carries)});
  return {};
}

Status Saver::loadable() const {
  if (!uses_.step.runs()) return uses_.residence.drain();
  return failed_precondition("set '{}' is loaded while step {} is in progress", set_.name,
                             set_.step.index);
}

// The checksum of the plan was right, so the plan is undamaged, but it may be of another set or
// scheme.
Status Saver::check_plan_of(const Plan& plan, const PlanFacts& facts,
                            const BoundScheme& bound_scheme) const {
  const Status fits = check_plan(plan, facts, bound_scheme.scheduler()->name());
  if (fits.ok()) return {};
  return mismatch(
      "the saved plan does not fit set '{}' ({}): load it under the configuration it was saved "
      "with",
      set_.name, fits.message());
}

// The parts of a load that can fail.
Result<std::unique_ptr<CompiledPlan>> Saver::make_compiled_plan(const SavedSet& saved, Plan plan) {
  PENSTOCK_ASSIGN(const auto bound_scheme, uses_.fits.fit(saved.step));
  PENSTOCK_TRY(check_plan_of(plan, uses_.plans.facts_of(*bound_scheme), *bound_scheme));
  PENSTOCK_TRY(uses_.channels.open_levels_of(plan));
  PENSTOCK_ASSIGN(auto compiled, uses_.plans.compiled_plan_of(bound_scheme, std::move(plan)));
  PENSTOCK_TRY(compiled->states().read(saved.tensors));
  return compiled;
}

void Saver::go_on_from(Loaded loaded) {
  std::string left_to_add;
  for (size_t i = 0; i < loaded.carries.size(); ++i)
    if (loaded.carries[i].bytes() != 0)
      left_to_add += uses_.declaration.gradients()[i]->name + '\n';
  std::string where =
      where_to_go_on(loaded.step, loaded.compiled->plan(), " of a loaded state", left_to_add);
  // So far the set is unchanged. If install() does not throw, nothing after it fails.
  const std::unique_ptr<CompiledPlan> replaced = uses_.plans.install(std::move(loaded.compiled));
  uses_.carries.replace(std::move(loaded.carries));
  begin_at(loaded.step, std::move(where));
}

void Saver::begin_at(uint64_t step, std::string where) {
  uses_.step.drop();
  set_.step.index = step;
  uses_.agreement.need(std::move(where), step);
  uses_.step_end.begin_next();
}

Status Saver::reset() {
  PENSTOCK_TRY(services_.state());
  while (!uses_.step.wait_until_idle(kPatienceUs)) {
  }
  PENSTOCK_TRY(uses_.residence.drain());
  uses_.step.drop();
  PENSTOCK_TRY(uses_.plans.compiled().states().zero());
  uses_.carries.drop();
  uses_.step_end.begin_next();
  return {};
}

// ---- states of another number of ranks ----

// Reads the states with the plan under which they were saved, so that every state has a place. No
// step runs with this plan, so it need not fit the frontend's buckets.
Result<std::unique_ptr<CompiledPlan>> Saver::compiled_plan_of_shards(
    const std::vector<SavedSet>& saved, const std::shared_ptr<const BoundScheme>& bound_scheme,
    const Resize& to, std::string& said) const {
  PENSTOCK_ASSIGN(Plan plan, plan_from_bytes(saved.front().plan));
  PlanFacts facts = uses_.plans.facts_of(*bound_scheme);
  facts.buckets_are_given = false;
  PENSTOCK_TRY(check_plan_of(plan, facts, *bound_scheme));
  for (const planning::Bucket& bucket : plan.buckets)
    if (has_owners(bucket.route))
      return failed_precondition(
          "set '{}': on route '{}' each rank owns a part, and {} ranks have other parts than this "
          "run; load it on as many ranks as saved it",
          set_.name, route_name(bucket.route), saved.size());
  PENSTOCK_ASSIGN(auto compiled, uses_.plans.compiled_plan_of(bound_scheme, std::move(plan)));
  std::vector<std::string_view> tensors;
  for (const SavedSet& one : saved) tensors.push_back(one.tensors);
  PENSTOCK_ASSIGN(said, compiled->states().read_shards(tensors, to));
  return compiled;
}

// Makes a new plan for this number of ranks. The mass of states without a place in it, for example
// because another compressor was chosen, becomes carries, as between two steps of a run.
Status Saver::change_plan(const std::shared_ptr<const BoundScheme>& bound_scheme,
                          std::string& said) {
  PENSTOCK_ASSIGN(Plan plan, uses_.plans.agree_on_plan(*bound_scheme));
  CompiledPlan& compiled = uses_.plans.compiled();
  if (plan == compiled.plan()) {
    compiled.explain(std::move(plan.explanation));
    return uses_.carries.join(compiled);
  }
  PENSTOCK_ASSIGN(std::unique_ptr<CompiledPlan> next,
                  uses_.plans.agree_on_compiled_plan(bound_scheme, std::move(plan)));
  PENSTOCK_TRY(uses_.change.hand_over(*next));
  said += compiled.states().left_by(next->states());
  // Queued work of device-resident gradients may use states that end with this plan.
  PENSTOCK_TRY(uses_.residence.drain_residents());
  uses_.plans.install(std::move(next));
  return {};
}

Status Saver::load_shards(std::span<const std::string_view> shards, std::string& said) {
  PENSTOCK_TRY(services_.state());
  Result<std::vector<SavedSet>> saved = loadable();
  if (saved.status().ok())
    saved = read_all_saved(shards, set_.name, uses_.declaration.gradients().size());
  Result<std::shared_ptr<const BoundScheme>> bound_scheme = saved.status();
  std::string same;
  if (saved.ok()) {
    bound_scheme = uses_.fits.fit(saved->front().step);
    for (const std::string_view shard : shards) same += hash_text(hash64(shard)) + '\n';
  }
  PENSTOCK_TRY(uses_.consensus.to_go_on("shards to load", bound_scheme.status()));
  PENSTOCK_TRY(uses_.consensus.on_text(fmt::format("shards for set {}", set_.name), same));
  if (shards.size() == set_.world) {
    said = fmt::format("all: as {} ranks have saved it, each its own\n", set_.world);
    return load(shards[set_.rank]);
  }
  const Resize to{set_.rank, set_.world, shards.size(), !set_.result_is_sum};
  Loaded loaded{saved->front().step, nullptr, {}};
  const Status made = unless_thrown([&]() -> Status {
    PENSTOCK_ASSIGN(loaded.compiled, compiled_plan_of_shards(*saved, *bound_scheme, to, said));
    PENSTOCK_ASSIGN(loaded.carries, uses_.carries.read_shards(*saved, to, said));
    return {};
  });
  PENSTOCK_TRY(uses_.consensus.to_go_on("loaded shards", made));
  return go_on_from_shards(std::move(loaded), *bound_scheme, said);
}

// If it fails, it fails on every rank, and the set is unchanged.
Status Saver::go_on_from_shards(Loaded loaded,
                                const std::shared_ptr<const BoundScheme>& bound_scheme,
                                std::string& said) {
  std::unique_ptr<CompiledPlan> before = uses_.plans.install(std::move(loaded.compiled));
  Carries::Kept carries_before = uses_.carries.replace(std::move(loaded.carries));
  std::string where;
  const Status status = unless_thrown([&]() -> Status {
    PENSTOCK_TRY(change_plan(bound_scheme, said));
    where = where_to_go_on(loaded.step, uses_.plans.compiled().plan(), " of a loaded state",
                           uses_.carries.names());
    return {};
  });
  if (!status.ok()) {
    uses_.plans.install(std::move(before));
    uses_.carries.replace(std::move(carries_before));
    return status;
  }
  begin_at(loaded.step, std::move(where));
  return {};
}

}  // namespace penstock

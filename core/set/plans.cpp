#include "core/set/plans.hpp"

#include "core/base/hash.hpp"
#include "core/base/unless_thrown.hpp"
#include "core/bucket/needs_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace penstock {

// The state of a device-resident gradient lies on its device and cannot be handed over. So it keeps
// the scheme's route, even if the scheme leaves the route to the scheduler.
uint64_t Plans::routes_open_to(const Gradient& gradient, const BoundScheme& bound_scheme) const {
  const Scheme& scheme = bound_scheme.scheme();
  const bool is_bound = gradient.on_device.resident != nullptr && scheme.where.count("route") == 0;
  return is_bound ? uint64_t{1} << scheme.route : ~uint64_t{0};
}

PlanFacts Plans::facts_of(const BoundScheme& bound_scheme) const {
  PlanFacts facts = bound_scheme.plan_facts();
  for (const auto& gradient : declaration_.gradients())
    for (PlanFacts::Candidate& candidate : facts.candidates[gradient->index])
      candidate.routes &= routes_open_to(*gradient, bound_scheme);
  return facts;
}

planning::ModelEntries Plans::model_of(const BoundScheme& bound_scheme) const {
  planning::ModelEntries model = bound_scheme.model();
  for (const auto& gradient : declaration_.gradients())
    for (planning::CandidateEntry& candidate : model.gradients[gradient->index].candidates)
      candidate.routes &= routes_open_to(*gradient, bound_scheme);
  // Backward reaches the parameters in the reverse of their registration, until measured otherwise.
  model.order.resize(declaration_.gradients().size());
  std::iota(model.order.rbegin(), model.order.rend(), uint64_t{0});
  if (!given_order_.empty()) model.order = given_order_;
  model.hosts = services_.topology.cross_size;
  model.ranks_per_host = services_.topology.local_size;
  if (declaration_.has(PENSTOCK_SET_DEFERRED_UPDATE)) model.flags |= PENSTOCK_MODEL_FORWARD_WAITS;
  if (declaration_.has(PENSTOCK_SET_GIVEN_BUCKETS)) model.flags |= PENSTOCK_MODEL_GIVEN_BUCKETS;
  measurements_.complete(bound_scheme, model, given_order_);
  return model;
}

void Plans::keep_order_of_last_step() {
  const CompiledPlan::Gradients& gradients = declaration_.gradients();
  given_order_.resize(gradients.size());
  std::iota(given_order_.begin(), given_order_.end(), uint64_t{0});
  std::sort(given_order_.begin(), given_order_.end(),
            [&](uint64_t a, uint64_t b) { return gradients[a]->place < gradients[b]->place; });
}

Result<Plan> Plans::agree_on_plan(const BoundScheme& bound_scheme) {
  const TimedSpan span(set_.timeline, "negotiate", "application", set_.step.index);
  std::string mine;
  Status status;
  if (set_.rank == 0) {
    const PluginCall noted(set_.planning_calls, "scheduler", bound_scheme.scheduler()->name(),
                           "plan", {}, set_.name, set_.step.index);
    status = unless_thrown([&]() -> Status {
      PENSTOCK_ASSIGN(const Plan plan,
                      make_plan(*bound_scheme.scheduler(),
                                planning::OwnedModel(model_of(bound_scheme)).model()));
      mine = plan_bytes(plan);
      return {};
    });
  }
  // An empty text notifies the other ranks that rank 0 could not plan.
  PENSTOCK_ASSIGN(const std::string bytes,
                  consensus_.hear_first(
                      fmt::format("plan of set {} at step {}", set_.name, set_.step.index), mine));
  // From here on all ranks get equal results.
  PENSTOCK_TRY(consensus_.refused(status));
  if (bytes.empty())
    return consensus_.refused(
        peer_failed("set '{}': rank {} could not make a plan; its error says why", set_.name,
                    declaration_.group().ranks().front()));
  Result<Plan> plan = plan_from_bytes(bytes);
  PENSTOCK_TRY(consensus_.refused(plan.status()));
  PENSTOCK_TRY(consensus_.refused(
      check_plan(plan.value(), facts_of(bound_scheme), bound_scheme.scheduler()->name())));
  return plan;
}

// Compares the needs of all ranks. With equal plans, plugins may still answer differently on the
// ranks, and a rank that sends nothing, or another number of bytes, would give the other ranks
// wrong sums. `compiled` may be the error of this rank, which the other ranks then read.
Status Plans::agree_on_needs(const Result<std::unique_ptr<CompiledPlan>>& compiled) {
  const std::string text =
      compiled.ok() ? needs_text(compiled.value()->phases())
                    : fmt::format("cannot be planned: {}\n", compiled.status().message());
  const std::string topic = fmt::format("needs of set {} at step {}", set_.name, set_.step.index);
  // The texts are long and nearly always equal, so a hash goes first.
  Status agreed = consensus_.on_text(topic + ", hashed", hash_text(hash64(text)));
  if (agreed.code() == Code::mismatch) agreed = consensus_.on_text(topic, text);
  const bool all_know = agreed.ok() || agreed.code() == Code::mismatch;
  if (!compiled.ok()) agreed = compiled.status();
  return all_know ? consensus_.refused(agreed) : agreed;
}

Result<std::unique_ptr<CompiledPlan>> Plans::agree_on_compiled_plan(
    const std::shared_ptr<const BoundScheme>& bound_scheme, Plan plan) {
  PENSTOCK_TRY(channels_.open_levels_of(plan));
  Result<std::unique_ptr<CompiledPlan>> compiled =
      CompiledPlan::make(set_, bound_scheme, std::move(plan), declaration_.gradients(),
                         is_made() ? &compiled_->states() : nullptr);
  PENSTOCK_TRY(agree_on_needs(compiled));
  return compiled;
}

Result<std::unique_ptr<CompiledPlan>> Plans::compiled_plan_of(
    const std::shared_ptr<const BoundScheme>& bound_scheme, Plan plan) {
  return CompiledPlan::make(set_, bound_scheme, std::move(plan), declaration_.gradients(), nullptr);
}

std::unique_ptr<CompiledPlan> Plans::install(std::unique_ptr<CompiledPlan> compiled) {
  measurements_.begin(*compiled);
  compiled_.swap(compiled);
  compiled_->lend_scratch();
  set_.tags_per_step = compiled_->tags_per_step();
  return compiled;
}

}  // namespace penstock

#include "core/set/plans.hpp"

#include "core/base/hash.hpp"
#include "core/base/out_of_memory.hpp"
#include "core/bucket/needs_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace penstock {

// What is kept of a resident lies on its device, and cannot be handed over: where the scheme leaves
// the route to the scheduler, it stays on the one for which it was decided.
uint64_t Plans::routes_open_to(const Gradient& gradient, const Fitting& fitting) const {
  const Scheme& scheme = fitting.scheme();
  const bool is_bound = gradient.on_device.resident != nullptr && scheme.where.count("route") == 0;
  return is_bound ? uint64_t{1} << scheme.route : ~uint64_t{0};
}

PlanFacts Plans::facts_of(const Fitting& fitting) const {
  PlanFacts facts = fitting.plan_facts();
  for (const auto& gradient : declaration_.gradients())
    for (PlanFacts::Candidate& candidate : facts.candidates[gradient->index])
      candidate.routes &= routes_open_to(*gradient, fitting);
  return facts;
}

planning::ModelEntries Plans::model_of(const Fitting& fitting) const {
  planning::ModelEntries model = fitting.model();
  for (const auto& gradient : declaration_.gradients())
    for (planning::CandidateEntry& candidate : model.gradients[gradient->index].candidates)
      candidate.routes &= routes_open_to(*gradient, fitting);
  // Backward reaches the parameters in the reverse of their registration, until measured otherwise.
  model.order.resize(declaration_.gradients().size());
  std::iota(model.order.rbegin(), model.order.rend(), uint64_t{0});
  if (!given_order_.empty()) model.order = given_order_;
  model.hosts = services_.topology.cross_size;
  model.ranks_per_host = services_.topology.local_size;
  if (declaration_.has(PENSTOCK_SET_DEFERRED_UPDATE)) model.flags |= PENSTOCK_MODEL_FORWARD_WAITS;
  if (declaration_.has(PENSTOCK_SET_GIVEN_BUCKETS)) model.flags |= PENSTOCK_MODEL_GIVEN_BUCKETS;
  measurements_.complete(fitting, model, given_order_);
  return model;
}

void Plans::keep_order_of_last_step() {
  const Works::Gradients& gradients = declaration_.gradients();
  given_order_.resize(gradients.size());
  std::iota(given_order_.begin(), given_order_.end(), uint64_t{0});
  std::sort(given_order_.begin(), given_order_.end(),
            [&](uint64_t a, uint64_t b) { return gradients[a]->place < gradients[b]->place; });
}

Result<Plan> Plans::agree_on_plan(const Fitting& fitting) {
  const TimedSpan span(set_.timeline, "negotiate", "application", set_.step.index);
  std::string mine;
  Status status;
  if (set_.rank == 0) {
    const PluginCall noted(set_.planning_calls, "scheduler", fitting.scheduler()->name(), "plan",
                           {}, set_.name, set_.step.index);
    status = unless_out_of_memory([&]() -> Status {
      PENSTOCK_ASSIGN(const Plan plan, make_plan(*fitting.scheduler(),
                                                 planning::OwnedModel(model_of(fitting)).model()));
      mine = plan_bytes(plan);
      return {};
    });
  }
  // An empty text tells the others that rank 0 could not plan.
  PENSTOCK_ASSIGN(const std::string bytes,
                  consensus_.hear_first(
                      fmt::format("plan of set {} at step {}", set_.name, set_.step.index), mine));
  // What follows comes out alike on all ranks.
  PENSTOCK_TRY(consensus_.refused(status));
  if (bytes.empty())
    return consensus_.refused(
        peer_failed("set '{}': rank {} could not make a plan; its error says why", set_.name,
                    declaration_.group().ranks().front()));
  Result<Plan> plan = plan_from_bytes(bytes);
  PENSTOCK_TRY(consensus_.refused(plan.status()));
  PENSTOCK_TRY(
      consensus_.refused(check_plan(plan.value(), facts_of(fitting), fitting.scheduler()->name())));
  return plan;
}

// Ranks of one plan may still have asked their plugins to another end: a rank that sends nothing,
// or another number of bytes, would leave the others with wrong sums. `works` may be the error of
// this rank, which the others then read.
Status Plans::agree_on_needs(const Result<std::unique_ptr<Works>>& works) {
  const std::string text = works.ok()
                               ? needs_text(works.value()->phases())
                               : fmt::format("cannot be planned: {}\n", works.status().message());
  const std::string topic = fmt::format("needs of set {} at step {}", set_.name, set_.step.index);
  // The texts are long and nearly always equal, so a hash goes first.
  Status agreed = consensus_.on_text(topic + ", hashed", hash_text(hash64(text)));
  if (agreed.code() == Code::mismatch) agreed = consensus_.on_text(topic, text);
  const bool all_know = agreed.ok() || agreed.code() == Code::mismatch;
  if (!works.ok()) agreed = works.status();
  return all_know ? consensus_.refused(agreed) : agreed;
}

Result<std::unique_ptr<Works>> Plans::agree_on_works(const std::shared_ptr<const Fitting>& fitting,
                                                     Plan plan) {
  PENSTOCK_TRY(channels_.open_levels_of(plan));
  Result<std::unique_ptr<Works>> works =
      Works::make(set_, fitting, std::move(plan), declaration_.gradients(),
                  is_made() ? &works_->states() : nullptr);
  PENSTOCK_TRY(agree_on_needs(works));
  return works;
}

Result<std::unique_ptr<Works>> Plans::works_of(const std::shared_ptr<const Fitting>& fitting,
                                               Plan plan) {
  return Works::make(set_, fitting, std::move(plan), declaration_.gradients(), nullptr);
}

std::unique_ptr<Works> Plans::install(std::unique_ptr<Works> works) {
  measurements_.begin(*works);
  works_.swap(works);
  works_->lend_scratch();
  set_.tags_per_step = works_->tags_per_step();
  return works;
}

}  // namespace penstock

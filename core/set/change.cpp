#include "core/set/change.hpp"

#include "core/base/unless_thrown.hpp"

#include <fmt/format.h>

namespace penstock {
namespace {

// `all`: includes the fields that a scheduler of an older ABI would refuse.
penstock_measurement measurement_of(const MeasuredTimes::Means& means, uint64_t step, bool all) {
  penstock_measurement c{};
  c.struct_size = sizeof c;
  c.step = step;
  c.n_steps = means.n_steps;
  c.step_us = means.step_us;
  c.backward_us = means.backward_us;
  c.exposed_us = means.exposed_us;
  c.ready_us = means.ready_us.data();
  c.n_gradients = means.ready_us.size();
  c.exchange_us = means.exchange_us.data();
  c.n_buckets = means.exchange_us.size();
  c.rank_backward_us = means.rank_backward_us.data();
  c.world = means.rank_backward_us.size();
  if (!all) return c;
  c.wire_us = means.wire_us.data();
  c.wait_us = means.wait_us.data();
  c.phase_first = means.phase_first.data();
  c.period = means.phase_first.size() - 1;
  return c;
}

}  // namespace

Status Change::after_step() {
  const uint64_t step = set_.step.index;
  const auto next = uses_.declaration.config().next_switch_after(step - 1);
  if (next && *next == step) PENSTOCK_TRY(switch_scheme());
  return observe();
}

// ---- measurements ----

// Every `observe_every` steps the scheduler of rank 0 receives the measurements of all ranks, and
// may ask for a new plan.
Status Change::observe() {
  CompiledPlan& compiled = uses_.plans.compiled();
  SchedulerInstance& scheduler = *compiled.bound_scheme().scheduler();
  const uint32_t every = scheduler.traits().observe_every;
  if (every == 0 || set_.step.index % every != 0 ||
      !PENSTOCK_HAS_MEMBER(scheduler.table(), penstock_scheduler, observe))
    return {};
  const Sent before = uses_.traffic.total();
  PENSTOCK_ASSIGN(const MeasuredTimes::Means means,
                  uses_.measurements.join(services_.limits.rendezvous_us));
  uses_.traffic.leave_out(before);
  PENSTOCK_ASSIGN(const bool wants, wants_new_plan(means));
  uses_.measurements.begin(compiled);
  if (!wants) return {};
  PENSTOCK_TRY(measure_links());
  return replace_compiled_plan(compiled.shared_bound_scheme());
}

Result<bool> Change::wants_new_plan(const MeasuredTimes::Means& means) {
  SchedulerInstance& scheduler = *uses_.plans.compiled().bound_scheme().scheduler();
  uint32_t decision = PENSTOCK_KEEP_PLAN;
  Status status;
  if (set_.rank == 0) {
    const penstock_measurement c = measurement_of(means, set_.step.index, reads_lines(scheduler));
    status = from_c(scheduler.table()->observe(scheduler.self(), &c, &decision));
  }
  const std::string mine = !status.ok()                         ? "error"
                           : decision == PENSTOCK_MAKE_NEW_PLAN ? "plan"
                                                                : "keep";
  PENSTOCK_ASSIGN(
      const std::string verdict,
      uses_.consensus.hear_first(
          fmt::format("verdict of set {} at step {}", set_.name, set_.step.index), mine));
  PENSTOCK_TRY(uses_.consensus.refused(status));
  if (verdict == "error")
    return uses_.consensus.refused(
        peer_failed("set '{}': the scheduler of rank {} failed; its error says why", set_.name,
                    uses_.declaration.group().ranks().front()));
  return verdict == "plan";
}

Status Change::measure_links() {
  PENSTOCK_ASSIGN(const std::vector<Channel*> levels,
                  uses_.channels.open_levels_of_first(uses_.declaration.group()));
  const Sent before = uses_.traffic.total();
  PENSTOCK_TRY(uses_.measurements.measure_links(uses_.plans.compiled(), levels));
  uses_.traffic.leave_out(before);
  return {};
}

// ---- buckets of the frontend ----

Status Change::give_buckets(std::span<const uint32_t> buckets) {
  PENSTOCK_TRY(uses_.step.failure());
  PENSTOCK_TRY(agree_on_buckets(buckets));
  const CompiledPlan::Gradients& gradients = uses_.declaration.gradients();
  std::vector<uint32_t> before;
  for (const auto& gradient : gradients) before.push_back(gradient->given_bucket);
  const auto give = [&](std::span<const uint32_t> given) {
    for (size_t i = 0; i < gradients.size(); ++i) gradients[i]->given_bucket = given[i];
  };
  give(buckets);
  if (set_.step.index > 0) uses_.plans.keep_order_of_last_step();
  uses_.consensus.begin();
  Status status = replace_compiled_plan(uses_.plans.compiled().shared_bound_scheme());
  if (status.ok()) return {};
  give(before);
  status = status.with_context(
      fmt::format("set '{}', buckets given at step {}", set_.name, set_.step.index));
  if (!uses_.consensus.refused_together()) {  // as at the end of a step
    services_.run.give_up(status);
    uses_.step.cause_returned();
  }
  return status;
}

// Reports an error that one rank finds to all ranks.
Status Change::agree_on_buckets(std::span<const uint32_t> buckets) const {
  const CompiledPlan::Gradients& gradients = uses_.declaration.gradients();
  const Group& group = uses_.declaration.group();
  const std::string topic = fmt::format("buckets of set {} at step {}", set_.name, set_.step.index);
  Status fault;
  if (!uses_.declaration.has(PENSTOCK_SET_GIVEN_BUCKETS))
    fault =
        failed_precondition("set '{}' was not made with given buckets (GIVEN_BUCKETS)", set_.name);
  else if (buckets.size() != gradients.size())
    fault = invalid_argument(
        "set '{}' got buckets for {} gradients, expected a bucket for each of its "
        "{} gradients",
        set_.name, buckets.size(), gradients.size());
  else if (uses_.step.under_way())
    fault = failed_precondition(
        "set '{}' got other buckets in the middle of step {}: end the step first", set_.name,
        set_.step.index);
  if (!fault.ok()) return services_.control.refuse(topic, fault, group.ranks());
  std::string text;
  for (size_t i = 0; i < buckets.size(); ++i)
    text += fmt::format("gradient '{}' bucket {}\n", gradients[i]->name, buckets[i]);
  return uses_.consensus.on_text(topic, text);
}

// ---- another compiled plan ----

// Makes a switch that takes effect at this step: new instances, a new plan. Carries of replaced
// memories are added to the step's gradients.
Status Change::switch_scheme() {
  Result<std::shared_ptr<const BoundScheme>> bound_scheme =
      unless_thrown([&] { return uses_.fits.fit(set_.step.index); });
  Status status = bound_scheme.status();
  if (status.ok()) {
    const Result<FitAdvice> advice = uses_.fits.check(*bound_scheme.value());
    if (advice.ok()) warn(advice.value(), set_, services_.log);
    status = advice.status();
  }
  PENSTOCK_TRY(uses_.consensus.to_go_on("switch", status));
  uses_.measurements.probe(*bound_scheme.value());
  return replace_compiled_plan(bound_scheme.value());
}

// Succeeds on every rank or fails on every rank. If it fails, the set is unchanged.
Status Change::replace_compiled_plan(const std::shared_ptr<const BoundScheme>& bound_scheme) {
  PENSTOCK_ASSIGN(Plan plan, uses_.plans.agree_on_plan(*bound_scheme));
  CompiledPlan& now = uses_.plans.compiled();
  if (bound_scheme == now.shared_bound_scheme() && plan == now.plan()) {
    now.explain(std::move(plan.explanation));
    return {};
  }
  // Queued work of device-resident gradients uses the compiled plan that is replaced.
  PENSTOCK_TRY(uses_.residence.drain_residents());
  PENSTOCK_ASSIGN(std::unique_ptr<CompiledPlan> compiled,
                  uses_.plans.agree_on_compiled_plan(bound_scheme, std::move(plan)));
  PENSTOCK_TRY(hand_over(*compiled));
  uses_.plans.install(std::move(compiled));
  return {};
}

Status Change::hand_over(const CompiledPlan& next) {
  PENSTOCK_TRY(uses_.carries.hand_over(uses_.plans.compiled(), next, [this](const Status& mine) {
    return uses_.consensus.to_go_on("end of a memory", mine);
  }));
  return uses_.carries.join(next);
}

}  // namespace penstock

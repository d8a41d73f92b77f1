#include "core/set/change.hpp"

#include "core/base/out_of_memory.hpp"

#include <fmt/format.h>

namespace penstock {
namespace {

// `all`: with what a scheduler of an older ABI would refuse.
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

// ---- what was measured ----

// Every so many steps rank 0's scheduler sees what was measured on all ranks, and may ask for a new
// plan.
Status Change::observe() {
  Works& works = uses_.plans.works();
  SchedulerInstance& scheduler = *works.fitting().scheduler();
  const uint32_t every = scheduler.traits().observe_every;
  if (every == 0 || set_.step.index % every != 0 ||
      !PENSTOCK_HAS_MEMBER(scheduler.table(), penstock_scheduler, observe))
    return {};
  const Sent before = uses_.traffic.total();
  PENSTOCK_ASSIGN(const MeasuredTimes::Means means,
                  uses_.measurements.join(services_.limits.meeting_us));
  uses_.traffic.leave_out(before);
  PENSTOCK_ASSIGN(const bool wants, wants_new_plan(means));
  uses_.measurements.begin(works);
  if (!wants) return {};
  PENSTOCK_TRY(measure_links());
  return replace_works(works.shared_fitting());
}

Result<bool> Change::wants_new_plan(const MeasuredTimes::Means& means) {
  SchedulerInstance& scheduler = *uses_.plans.works().fitting().scheduler();
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
  PENSTOCK_TRY(uses_.measurements.measure_links(uses_.plans.works(), levels));
  uses_.traffic.leave_out(before);
  return {};
}

// ---- buckets of the frontend ----

Status Change::give_buckets(std::span<const uint32_t> buckets) {
  PENSTOCK_TRY(uses_.step.failure());
  PENSTOCK_TRY(agree_on_buckets(buckets));
  const Works::Gradients& gradients = uses_.declaration.gradients();
  std::vector<uint32_t> before;
  for (const auto& gradient : gradients) before.push_back(gradient->given_bucket);
  const auto give = [&](std::span<const uint32_t> given) {
    for (size_t i = 0; i < gradients.size(); ++i) gradients[i]->given_bucket = given[i];
  };
  give(buckets);
  if (set_.step.index > 0) uses_.plans.keep_order_of_last_step();
  uses_.consensus.begin();
  Status status = replace_works(uses_.plans.works().shared_fitting());
  if (status.ok()) return {};
  give(before);
  status = status.with_context(
      fmt::format("set '{}', buckets given at step {}", set_.name, set_.step.index));
  if (!uses_.consensus.refused_together()) {  // as at the end of a step
    services_.run.give_up(status);
    uses_.step.told();
  }
  return status;
}

// What one rank finds wrong all hear of.
Status Change::agree_on_buckets(std::span<const uint32_t> buckets) const {
  const Works::Gradients& gradients = uses_.declaration.gradients();
  const Group& group = uses_.declaration.group();
  const std::string topic = fmt::format("buckets of set {} at step {}", set_.name, set_.step.index);
  Status fault;
  if (!uses_.declaration.has(PENSTOCK_SET_GIVEN_BUCKETS))
    fault =
        failed_precondition("set '{}' was not made with given buckets (GIVEN_BUCKETS)", set_.name);
  else if (buckets.size() != gradients.size())
    fault =
        invalid_argument("set '{}' got buckets for {} gradients, expected one for each of its {}",
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

// ---- other works ----

// A switch takes effect at this step: new instances, a new plan; what a replaced memory kept goes
// into the step's gradients.
Status Change::switch_scheme() {
  Result<std::shared_ptr<const Fitting>> fitting =
      unless_out_of_memory([&] { return uses_.fits.fit(set_.step.index); });
  Status status = fitting.status();
  if (status.ok()) {
    const Result<FitAdvice> advice = uses_.fits.check(*fitting.value());
    if (advice.ok()) warn(advice.value(), set_, services_.log);
    status = advice.status();
  }
  PENSTOCK_TRY(uses_.consensus.to_go_on("switch", status));
  uses_.measurements.probe(*fitting.value());
  return replace_works(fitting.value());
}

// Succeeds on every rank or fails on every rank; where it fails, all is as it was.
Status Change::replace_works(const std::shared_ptr<const Fitting>& fitting) {
  PENSTOCK_ASSIGN(Plan plan, uses_.plans.agree_on_plan(*fitting));
  Works& now = uses_.plans.works();
  if (fitting == now.shared_fitting() && plan == now.plan()) {
    now.explain(std::move(plan.explanation));
    return {};
  }
  // What is queued of residents uses the works that go.
  PENSTOCK_TRY(uses_.residence.drain_residents());
  PENSTOCK_ASSIGN(std::unique_ptr<Works> works,
                  uses_.plans.agree_on_works(fitting, std::move(plan)));
  PENSTOCK_TRY(hand_over(*works));
  uses_.plans.install(std::move(works));
  return {};
}

Status Change::hand_over(const Works& next) {
  PENSTOCK_TRY(uses_.carries.hand_over(uses_.plans.works(), next, [this](const Status& mine) {
    return uses_.consensus.to_go_on("end of a memory", mine);
  }));
  return uses_.carries.join(next);
}

}  // namespace penstock

// Changing a set between two steps: switches of the configuration, and new plans from what was
// measured.

#include "core/base/out_of_memory.hpp"
#include "core/set/set.hpp"

#include <algorithm>
#include <numeric>

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

Status Set::change() {
  const auto next = config_.next_switch_after(step.index - 1);
  if (next && *next == step.index) PENSTOCK_TRY(switch_scheme());
  return observe();
}

// Every so many steps rank 0's scheduler sees what was measured on all ranks, and may ask for a new
// plan.
Status Set::observe() {
  SchedulerInstance& scheduler = *works_->fitting().scheduler();
  const uint32_t every = scheduler.traits().observe_every;
  if (every == 0 || step.index % every != 0 ||
      !PENSTOCK_HAS_MEMBER(scheduler.table(), penstock_scheduler, observe))
    return {};
  PENSTOCK_ASSIGN(const MeasuredTimes::Means means, measurements_.join(meeting_us_));
  uint32_t decision = PENSTOCK_KEEP_PLAN;
  Status status;
  if (rank == 0) {
    const penstock_measurement c = measurement_of(means, step.index, reads_lines(scheduler));
    status = from_c(scheduler.table()->observe(scheduler.self(), &c, &decision));
  }
  const std::string mine = !status.ok()                         ? "error"
                           : decision == PENSTOCK_MAKE_NEW_PLAN ? "plan"
                                                                : "keep";
  PENSTOCK_ASSIGN(
      const std::string verdict,
      services_.control.hear_first(fmt::format("verdict of set {} at step {}", name, step.index),
                                   mine, group_.ranks(), meeting_us_));
  PENSTOCK_TRY(refused(status));
  if (verdict == "error")
    return refused(peer_failed("set '{}': the scheduler of rank {} failed; its error says why",
                               name, group_.ranks().front()));
  measurements_.begin(*works_);
  if (verdict != "plan") return {};
  PENSTOCK_TRY(measurements_.measure_links(*works_));
  return replace_works(works_->shared_fitting());
}

// ---- buckets of the frontend ----

Status Set::given_buckets(std::span<const uint32_t> buckets) {
  PENSTOCK_TRY(step_.failure());
  PENSTOCK_TRY(agree_on_buckets(buckets));
  std::vector<uint32_t> before;
  for (const auto& gradient : gradients_) before.push_back(gradient->given_bucket);
  const auto give = [&](std::span<const uint32_t> given) {
    for (size_t i = 0; i < gradients_.size(); ++i) gradients_[i]->given_bucket = given[i];
  };
  give(buckets);
  if (step.index > 0) keep_order_of_last_step();
  refused_together_ = false;
  Status status = replace_works(works_->shared_fitting());
  if (status.ok()) {
    begin_attempt();
    return {};
  }
  give(before);
  status = status.with_context(fmt::format("set '{}', buckets given at step {}", name, step.index));
  if (!refused_together_) {  // as at the end of a step
    services_.run.give_up(status);
    step_.told();
  }
  return status;
}

// In it they lie in the frontend's buckets, as far as can be known.
void Set::keep_order_of_last_step() {
  given_order_.resize(gradients_.size());
  std::iota(given_order_.begin(), given_order_.end(), uint64_t{0});
  std::sort(given_order_.begin(), given_order_.end(),
            [&](uint64_t a, uint64_t b) { return gradients_[a]->place < gradients_[b]->place; });
}

// What one rank finds wrong all hear of.
Status Set::agree_on_buckets(std::span<const uint32_t> buckets) {
  const std::string topic = fmt::format("buckets of set {} at step {}", name, step.index);
  Status fault;
  if ((frontend_flags_ & PENSTOCK_SET_GIVEN_BUCKETS) == 0)
    fault = failed_precondition("set '{}' was not made with given buckets (GIVEN_BUCKETS)", name);
  else if (buckets.size() != gradients_.size())
    fault =
        invalid_argument("set '{}' got buckets for {} gradients, expected one for each of its {}",
                         name, buckets.size(), gradients_.size());
  else if (step_.under_way())
    fault = failed_precondition(
        "set '{}' got other buckets in the middle of step {}: end the step first", name,
        step.index);
  if (!fault.ok()) return services_.control.refuse(topic, fault, group_.ranks());
  std::string text;
  for (size_t i = 0; i < buckets.size(); ++i)
    text += fmt::format("gradient '{}' bucket {}\n", gradients_[i]->name, buckets[i]);
  return services_.control.agree(topic, text, group_.ranks(), meeting_us_);
}

// A switch takes effect at this step: new instances, a new plan; what a replaced memory kept goes
// into the step's gradients.
Status Set::switch_scheme() {
  Result<std::shared_ptr<const Fitting>> fitting =
      unless_out_of_memory([&] { return fit(step.index); });
  Status status = fitting.status();
  if (status.ok()) {
    const Result<FitAdvice> advice = check_fit_of(*fitting.value());
    if (advice.ok()) warn(advice.value());
    status = advice.status();
  }
  PENSTOCK_TRY(agree_to_go_on("switch", status));
  measurements_.probe(*fitting.value());
  return replace_works(fitting.value());
}

// Succeeds on every rank or fails on every rank; where it fails, all is as it was.
Status Set::replace_works(const std::shared_ptr<const Fitting>& fitting) {
  PENSTOCK_ASSIGN(Plan plan, agree_on_plan(*fitting));
  if (fitting == works_->shared_fitting() && plan == works_->plan()) {
    works_->explain(std::move(plan.explanation));
    return {};
  }
  // What is queued of residents uses the works that go.
  if (residents_ != nullptr) PENSTOCK_TRY(residents_->drain(services_.limits.end_us));
  PENSTOCK_ASSIGN(std::unique_ptr<Works> works, agree_on_works(fitting, std::move(plan)));
  PENSTOCK_TRY(hand_over(*works));
  install(std::move(works));
  return {};
}

// What one rank found wrong between two steps all hear of, and none goes on.
Status Set::agree_to_go_on(std::string_view topic, const Status& mine) {
  PENSTOCK_ASSIGN(
      const auto texts,
      services_.control.gather(fmt::format("{} of set {} at step {}", topic, name, step.index),
                               mine.message(), group_.ranks(), meeting_us_));
  PENSTOCK_TRY(refused(mine));
  for (size_t r = 0; r < texts.size(); ++r)
    if (!texts[r].empty())
      return refused(peer_failed("set '{}', {} at step {}: rank {} cannot: {}", name, topic,
                                 step.index, group_.ranks()[r], texts[r]));
  return {};
}

// What ends under `next` is left over, to be added to the next step.
Status Set::hand_over(const Works& next) {
  PENSTOCK_TRY(carries_.hand_over(*works_, next, [this](const Status& mine) {
    return agree_to_go_on("end of a memory", mine);
  }));
  return carries_.join(next);
}

}  // namespace penstock

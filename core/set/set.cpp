// What the application calls between gradients and waits: the end of a step, and of the set.

#include "core/set/set.hpp"

#include "core/base/hash.hpp"
#include "core/base/out_of_memory.hpp"
#include "core/bucket/calls.hpp"
#include "core/bucket/engine.hpp"

namespace penstock {

Set::Set(const Services& services)
    : services_(services),
      step_(*this, gradients_, group_, services_),
      agreement_(services_, name, group_, step_) {
  listener = &step_;
}

Set::~Set() {
  services_.run.forget(*this);
}

void SetCloser::operator()(Set* set) const {
  if (set->end()) delete set;
}

void Set::fail(const Status& reason) {
  step_.tear(agreement_.explain(reason));
}

Status Set::wait(uint64_t index) {
  const Status status = step_.wait(index);
  warn_of_nonfinite();
  return status;
}

Status Set::wait_stream(uint64_t index, void* stream) {
  const Status status = step_.wait_stream(index, stream);
  warn_of_nonfinite();
  return status;
}

Status Set::wait_all() {
  const Status status = step_.wait_all();
  warn_of_nonfinite();
  return status;
}

Status Set::backward_end() {
  const Status status = step_.wait_backward();
  warn_of_nonfinite();
  return status;
}

Status Set::flush() {
  PENSTOCK_TRY(step_.failure());
  return step_.under_way() ? wait_all() : Status();
}

// ---- the end of a step ----

Status Set::step_end(bool applied) {
  PENSTOCK_TRY(step_.wait_for_rest());
  warn_of_nonfinite();
  const uint64_t ending = step.index;
  if (services_.control.somebody_joined()) step_.tell_end(applied);
  Status refused_change;
  Status status = unless_out_of_memory([&] { return finish_step(applied, refused_change); });
  if (status.ok() && refused_change.ok()) return {};
  const std::string where = fmt::format("set '{}', end of step {}", name, ending);
  if (status.ok()) return refused_change.with_context(where);
  // Half changed, perhaps on this rank alone: no step can follow, and the others must not wait for
  // one.
  status = status.with_context(where);
  services_.run.give_up(status);
  step_.told();
  return status;
}

// `refused_change`: why all ranks stay with the plan that they have.
Status Set::finish_step(bool applied, Status& refused_change) {
  if (!applied) {
    PENSTOCK_TRY(engine->run([&] {
      for (auto& bucket : works_->phase(step.phase)) PENSTOCK_TRY(give_back_own(*bucket));
      return Status();
    }));
  }
  settle_carries(applied);
  if (nonfinite_gradient.exchange(kNoGradient) != kNoGradient) ++nonfinite_steps_;
  count_step();
  refused_together_ = false;
  refused_change = change();
  if (!refused_change.ok() && !refused_together_) return refused_change;
  PENSTOCK_TRY(compare_replicated());
  step_.arm(*works_);
  return {};
}

void Set::count_step() {
  const uint64_t ended = now_us();
  const uint32_t phase = step.phase;
  const Step::Times times = step_.finish();
  for (const auto& gradient : gradients_)
    if (!works_->of(phase, gradient->index).empty())
      measured_.add_ready(gradient->index, double(gradient->ready_us - times.first_ready_us));
  for (size_t b = 0; b < works_->phase(phase).size(); ++b)
    measured_.add_bucket(phase, b, *works_->phase(phase)[b]);
  measured_.add_step(double(ended - times.first_ready_us),
                     double(times.last_ready_us - times.first_ready_us), times.waited_us);
  if (record_ != nullptr) record(times);
  {
    std::lock_guard lock(mutex_);
    for (const auto& gradient : gradients_)
      if (!works_->of(phase, gradient->index).empty()) totals_.gradient_bytes += gradient->bytes();
    dense_moved_ += dense_moved_per_step_;
    ++totals_.steps;
    if (started_us_ == 0) started_us_ = times.first_ready_us;
    ended_us_ = ended;
    if (totals_.steps == 2) allocations_at_steady_ = engine->allocations();
  }
  if (totals_.steps == kStepsOfTrial) warn_of_what_was_moved();
}

void Set::record(const Step::Times& times) {
  std::vector<double> ready_us;
  for (const auto& gradient : gradients_)
    ready_us.push_back(works_->of(step.phase, gradient->index).empty()
                           ? -1
                           : double(gradient->ready_us - times.first_ready_us));
  record_->add(ready_us, ended_us_ == 0 ? -1 : double(times.first_ready_us - ended_us_));
  if (record_->is_due()) say_profile();
}

// Replicated state must have the same bits on all ranks; with runtime.hash_replicated_every that is
// compared.
Status Set::compare_replicated() {
  const uint64_t every = services_.config.runtime().hash_replicated_every;
  if (every == 0 || step.index % every != 0) return {};
  // Owners on a host have other parts than each other, and those of a part meet across hosts.
  const bool owned = works_->has_route(PENSTOCK_ROUTE_HIERARCHICAL);
  const Group& alike = at(owned ? PENSTOCK_LEVEL_CROSS : PENSTOCK_LEVEL_WORLD).group;
  PENSTOCK_ASSIGN(const uint64_t hash, works_->states().hash_replicated());
  return services_.control.agree(
      fmt::format("replicated state of set {} at step {}{}", name, step.index,
                  owned ? fmt::format(" with rank {}", alike.ranks().front()) : ""),
      hash_text(hash), alike.ranks(), meeting_us_);
}

// ---- ranks that have joined ----

void Set::tell_where() {
  step_.tell_where();
}

Status Set::begin_with_zeros(uint64_t index, std::string_view facts) {
  PENSTOCK_TRY(catch_up(index));
  if (step.index != index || step_.under_way()) return {};
  return step_.begin_with_zeros(facts);
}

Status Set::end_with_others(uint64_t index, bool applied) {
  PENSTOCK_TRY(catch_up(index));
  return step.index == index ? step_end(applied) : Status();
}

// Steps that the others ended before they knew that somebody has joined had no message of theirs to
// wait for.
Status Set::catch_up(uint64_t index) {
  while (step.index < index) PENSTOCK_TRY(step_end(true));
  return {};
}

// ---- the end of a set that may be in the middle of a step ----

bool Set::end() {
  agreement_.end();
  say_end();
  if (record_ != nullptr && totals_.steps != 0) say_profile();
  step_.let_go();
  if (services_.state().ok() && !step_.wait_until_idle(services_.limits.deadline_us))
    services_.run.give_up(
        aborted("set '{}' was destroyed in the middle of step {}, which other ranks "
                "have not come to within {} s",
                name, step.index, double(services_.limits.deadline_us) * 1e-6));
  if (!step_.wait_until_idle(services_.limits.end_us) || !services_.run.answers()) {
    services_.run.abandon(fmt::format("set '{}'", name));
    return false;
  }
  end_on_devices();
  for (auto channel = open_channels_.rbegin(); channel != open_channels_.rend(); ++channel)
    services_.communication.close_channel(*channel);
  step_.stop();
  return true;
}

}  // namespace penstock

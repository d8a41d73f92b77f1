// The end of a step: what became of its results, and what follows from that.

#include "core/base/hash.hpp"
#include "core/base/out_of_memory.hpp"
#include "core/bucket/calls.hpp"
#include "core/bucket/engine.hpp"
#include "core/set/set.hpp"

#include <algorithm>
#include <set>

namespace penstock {

// ---- what frontends see ----

Status Set::optimizer_step(std::span<const uint64_t> gradients, std::span<const uint8_t> gone,
                           uint32_t moment) {
  if (moment < PENSTOCK_OPTIMIZER_BEGINS || moment > PENSTOCK_OPTIMIZER_LEAVES_OUT)
    return invalid_argument("the moment of an optimizer's step is {}, expected 1, 2 or 3", moment);
  for (const uint64_t index : gradients)
    if (index >= gradients_.size())
      return invalid_argument("set '{}' has {} gradients, there is no gradient {}", name,
                              gradients_.size(), index);
  outcome_.optimizer(gradients, gone,
                     static_cast<Outcome::Moment>(moment - PENSTOCK_OPTIMIZER_BEGINS),
                     step_.under_way());
  return {};
}

Status Set::results_gone(std::span<const uint8_t> gone) {
  if (gone.size() != gradients_.size())
    return invalid_argument("set '{}' was told of {} results, expected one for each of its {}",
                            name, gone.size(), gradients_.size());
  outcome_.results_gone(gone);
  return {};
}

// ---- the end ----

Status Set::step_end(uint32_t outcome) {
  PENSTOCK_TRY(step_.wait_for_rest());
  if (outcome > PENSTOCK_STEP_AS_SEEN)
    return invalid_argument("the outcome of a step is {}, expected 0, 1 or 2", outcome);
  if (outcome == PENSTOCK_STEP_AS_SEEN)
    outcome_.decide(void_buckets.load() != void_before_, forgotten_);
  else
    std::fill(forgotten_.begin(), forgotten_.end(), outcome == PENSTOCK_STEP_FORGOTTEN ? 1 : 0);
  return end_step(forgotten_);
}

Status Set::end_step(const std::vector<uint8_t>& forgotten) {
  PENSTOCK_TRY(step_.wait_for_rest());
  PENSTOCK_TRY(forgettable(forgotten));
  warn_of_nonfinite();
  const uint64_t ending = step.index;
  if (services_.control.somebody_joined()) step_.tell_end(forgotten);
  Status refused_change;
  Status status = unless_out_of_memory([&] { return finish_step(forgotten, refused_change); });
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
Status Set::finish_step(const std::vector<uint8_t>& forgotten, Status& refused_change) {
  const bool counts =
      std::find(forgotten.begin(), forgotten.end(), 0) != forgotten.end() || forgotten.empty();
  PENSTOCK_TRY(settle_states(forgotten));
  carries_.settle(*works_, step.phase, forgotten);
  note_past(forgotten);
  if (nonfinite_gradient.exchange(kNoGradient) != kNoGradient) ++nonfinite_steps_;
  count_step(counts);
  PENSTOCK_ASSIGN(const bool lets_go, forgotten_watch_.ends_patience(counts, works_->states()));
  if (lets_go) PENSTOCK_TRY(drop_kept());
  if (counts) {
    refused_together_ = false;
    refused_change = change();
    if (!refused_change.ok() && !refused_together_) return refused_change;
    PENSTOCK_TRY(compare_replicated());
  }
  begin_attempt();
  return {};
}

// What is kept is dropped; of a memory all of it together, for its parts mean nothing alone.
Status Set::let_go() {
  PENSTOCK_TRY(services_.state());
  if (step_.under_way()) PENSTOCK_TRY(step_end(PENSTOCK_STEP_FORGOTTEN));
  return drop_kept();
}

Status Set::drop_kept() {
  const auto drop = [&] { return works_->states().zero_of("memory/"); };
  PENSTOCK_TRY(residents_ == nullptr ? drop() : engine->run(drop));
  carries_.drop();
  forgotten_watch_.begin_again();
  // A rank that alone has let go is found like one that alone has forgotten.
  past ^= 1;
  last_was_applied = false;
  return {};
}

// Without a second generation nothing can be dropped, and to guess would be worse.
Status Set::forgettable(const std::vector<uint8_t>& forgotten) const {
  const auto first =
      std::find_if(forgotten.begin(), forgotten.end(), [](uint8_t gone) { return gone != 0; });
  if (forgets || first == forgotten.end() || !works_->states().keeps_anything()) return {};
  return failed_precondition(
      "set '{}': the gradients of step {} were thrown away (that of '{}' first), and with "
      "[runtime] forget = false what they have left in the memories cannot be taken back: remove "
      "that line, or run such a backward under no_sync()",
      name, step.index, gradients_[size_t(first - forgotten.begin())]->name);
}

Status Set::settle_states(const std::vector<uint8_t>& forgotten) {
  std::function<bool(const std::string&)> is_forgotten;
  std::set<std::string_view> names;
  for (size_t i = 0; i < forgotten.size(); ++i)
    if (forgotten[i] != 0) names.insert(gradients_[i]->name);
  if (!names.empty())
    is_forgotten = [&](const std::string& gradient) { return names.contains(gradient); };
  const auto settle = [&] { return works_->states().end_step(is_forgotten); };
  return residents_ == nullptr ? settle() : engine->run(settle);
}

// Ranks whose digests differ tell each other with the next step's first message. Its lowest bit
// alone tells whether a whole step was forgotten.
void Set::note_past(const std::vector<uint8_t>& forgotten) {
  const auto n_forgotten =
      std::count_if(forgotten.begin(), forgotten.end(), [](uint8_t gone) { return gone != 0; });
  last_was_applied = n_forgotten == 0;
  if (last_was_applied) return;
  const bool all = size_t(n_forgotten) == forgotten.size();
  const auto seen = static_cast<uint16_t>(hash64(forgotten.data(), forgotten.size(), past));
  past = all ? (past ^ 1) : (past ^ 2 ^ seen);
}

void Set::begin_attempt() {
  outcome_.begin();
  void_before_ = void_buckets.load();
  step_.arm(*works_);
}

// `counts`: some gradient was applied.
void Set::count_step(bool counts) {
  const uint64_t ended = now_us();
  const uint32_t phase = step.phase;
  const Step::Times times = step_.finish(counts);
  measurements_.add_step(*works_, phase, times, ended);
  for (const auto& bucket : works_->phase(phase))
    bucket->last_step = {bucket->encode_us, bucket->exchange_us, bucket->decode_us};
  if (record_ != nullptr) record(times);
  {
    std::lock_guard lock(mutex_);
    for (const auto& gradient : gradients_)
      if (!works_->of(phase, gradient->index).empty()) totals_.gradient_bytes += gradient->bytes();
    dense_moved_ += traffic_.dense_per_step();
    ++(counts ? totals_.steps : totals_.forgotten_steps);
    if (started_us_ == 0) started_us_ = times.first_ready_us;
    ended_us_ = ended;
    if (totals_.steps + totals_.forgotten_steps == 2)
      allocations_at_steady_ = engine->allocations();
  }
  if (counts && traffic_.tells_after(totals_.steps))
    traffic_.compare_counted(totals_.steps, channels_.carriers(), planned_traffic());
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

}  // namespace penstock

#include "core/set/step_end.hpp"

#include "core/base/hash.hpp"
#include "core/base/unless_thrown.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string_view>

namespace penstock {
namespace {

bool is_forgotten(uint8_t gone) {
  return gone != 0;
}

}  // namespace

void StepEnd::resize(size_t n_gradients) {
  outcome_.resize(n_gradients);
  forgotten_.resize(n_gradients);
}

void StepEnd::begin_next() {
  outcome_.begin();
  void_before_ = set_.void_buckets.load();
  uses_.step.arm(uses_.plans.compiled());
}

// ---- reports of frontends ----

Status StepEnd::optimizer_step(std::span<const uint64_t> gradients, std::span<const uint8_t> gone,
                               uint32_t moment) {
  if (moment < PENSTOCK_OPTIMIZER_BEGINS || moment > PENSTOCK_OPTIMIZER_LEAVES_OUT)
    return invalid_argument("the moment of an optimizer's step is {}, expected 1, 2 or 3", moment);
  for (const uint64_t index : gradients)
    if (index >= uses_.declaration.gradients().size())
      return invalid_argument("set '{}' has {} gradients, there is no gradient {}", set_.name,
                              uses_.declaration.gradients().size(), index);
  outcome_.optimizer(gradients, gone,
                     static_cast<Outcome::Moment>(moment - PENSTOCK_OPTIMIZER_BEGINS),
                     uses_.step.under_way());
  return {};
}

Status StepEnd::results_gone(std::span<const uint8_t> gone) {
  if (gone.size() != uses_.declaration.gradients().size())
    return invalid_argument(
        "set '{}' got {} flags of lost results, expected one flag for each of "
        "its {} gradients",
        set_.name, gone.size(), uses_.declaration.gradients().size());
  outcome_.results_gone(gone);
  return {};
}

// ---- the end ----

Status StepEnd::end(uint32_t outcome) {
  PENSTOCK_TRY(uses_.waits.rest());
  if (outcome > PENSTOCK_STEP_AS_SEEN)
    return invalid_argument("the outcome of a step is {}, expected 0, 1 or 2", outcome);
  if (outcome == PENSTOCK_STEP_AS_SEEN)
    outcome_.decide(set_.void_buckets.load() != void_before_, forgotten_);
  else
    std::fill(forgotten_.begin(), forgotten_.end(), outcome == PENSTOCK_STEP_FORGOTTEN ? 1 : 0);
  return conclude();
}

Status StepEnd::end_as_notified(std::string_view forgotten) {
  if (forgotten.size() != forgotten_.size())
    return invalid_payload(
        "set '{}': the notice of the end of a step names {} gradients, expected "
        "{}",
        set_.name, forgotten.size(), forgotten_.size());
  std::copy(forgotten.begin(), forgotten.end(), forgotten_.begin());
  return conclude();
}

Status StepEnd::conclude() {
  PENSTOCK_TRY(uses_.waits.rest());
  PENSTOCK_TRY(forgettable());
  uses_.reporter.warn_of_nonfinite();
  const uint64_t ending = set_.step.index;
  if (services_.control.somebody_joined())
    services_.control.notify_step({set_.name, uses_.declaration.group().ranks(), set_.attempt, true,
                                   std::string(forgotten_.begin(), forgotten_.end())});
  Status refused_change;
  Status status = unless_thrown([&] { return finish(refused_change); });
  if (status.ok() && refused_change.ok()) return {};
  const std::string where = fmt::format("set '{}', end of step {}", set_.name, ending);
  if (status.ok()) return refused_change.with_context(where);
  // The set is half changed, perhaps on this rank only: no step can follow, and the other ranks
  // must not wait for a step.
  status = status.with_context(where);
  services_.run.give_up(status);
  uses_.step.cause_returned();
  return status;
}

// `refused_change`: the reason why all ranks keep their present plan.
Status StepEnd::finish(Status& refused_change) {
  const bool counts =
      std::find(forgotten_.begin(), forgotten_.end(), 0) != forgotten_.end() || forgotten_.empty();
  PENSTOCK_TRY(settle_states());
  uses_.carries.settle(uses_.plans.compiled(), set_.step.phase, forgotten_);
  note_past();
  uses_.reporter.count_nonfinite();
  count_step(counts);
  PENSTOCK_ASSIGN(const bool lets_go,
                  forgotten_watch_.ends_patience(counts, uses_.plans.compiled().states()));
  if (lets_go) PENSTOCK_TRY(drop_kept());
  if (counts) {
    uses_.consensus.begin();
    refused_change = uses_.change.after_step();
    if (!refused_change.ok() && !uses_.consensus.refused_together()) return refused_change;
    PENSTOCK_TRY(compare_replicated());
  }
  begin_next();
  return {};
}

// Drops carries and all states of memories together, because a single part has no meaning.
Status StepEnd::let_go() {
  PENSTOCK_TRY(services_.state());
  if (uses_.step.under_way()) PENSTOCK_TRY(end(PENSTOCK_STEP_FORGOTTEN));
  return drop_kept();
}

Status StepEnd::drop_kept() {
  PENSTOCK_TRY(uses_.residence.run_on_states(
      [&] { return uses_.plans.compiled().states().zero_of("memory/"); }));
  uses_.carries.drop();
  forgotten_watch_.begin_again();
  // If only this rank has let go, the digest shows it, like a step forgotten by one rank only.
  set_.past ^= 1;
  set_.last_was_applied = false;
  return {};
}

// Whether the forgotten gradients can be undone: without a second generation of states they cannot.
Status StepEnd::forgettable() const {
  const auto first = std::find_if(forgotten_.begin(), forgotten_.end(), is_forgotten);
  if (set_.forgets || first == forgotten_.end() ||
      !uses_.plans.compiled().states().keeps_anything())
    return {};
  return failed_precondition(
      "set '{}': the gradients of step {} were thrown away (that of '{}' first), and with "
      "[runtime] forget = false their traces in the memories cannot be removed: remove that line, "
      "or run such a backward under no_sync()",
      set_.name, set_.step.index,
      uses_.declaration.gradients()[size_t(first - forgotten_.begin())]->name);
}

Status StepEnd::settle_states() {
  std::function<bool(const std::string&)> forgets;
  std::set<std::string_view> names;
  for (size_t i = 0; i < forgotten_.size(); ++i)
    if (is_forgotten(forgotten_[i])) names.insert(uses_.declaration.gradients()[i]->name);
  if (!names.empty())
    forgets = [&](const std::string& gradient) { return names.contains(gradient); };
  return uses_.residence.run_on_states(
      [&] { return uses_.plans.compiled().states().end_step(forgets); });
}

// Updates the digest of outcomes, which ranks compare with the first message of the next step. Sums
// compare only the lowest bit, which changes when a whole step is forgotten.
void StepEnd::note_past() {
  const auto n_forgotten = std::count_if(forgotten_.begin(), forgotten_.end(), is_forgotten);
  set_.last_was_applied = n_forgotten == 0;
  if (set_.last_was_applied) return;
  const bool all = size_t(n_forgotten) == forgotten_.size();
  const auto seen = static_cast<uint16_t>(hash64(forgotten_.data(), forgotten_.size(), set_.past));
  set_.past = all ? (set_.past ^ 1) : (set_.past ^ 2 ^ seen);
}

// `counts`: some gradient was applied.
void StepEnd::count_step(bool counts) {
  const uint64_t ended = now_us();
  const uint32_t phase = set_.step.phase;
  CompiledPlan& compiled = uses_.plans.compiled();
  const StepTimes times = uses_.step.finish(counts);
  uses_.measurements.add_step(compiled, phase, times, ended);
  for (const auto& bucket : compiled.phase(phase))
    bucket->last_step = {bucket->encode_us, bucket->exchange_us, bucket->decode_us};
  uses_.reporter.add_step(phase, times, ended, counts);
}

// Compares hashes of the replicated state, whose bits must be equal on all ranks, every
// runtime.hash_replicated_every steps.
Status StepEnd::compare_replicated() {
  const uint64_t every = services_.config.runtime().hash_replicated_every;
  if (every == 0 || set_.step.index % every != 0) return {};
  // The owners on a host have different parts. The owners of one part are one rank on each host.
  const bool owned = uses_.plans.compiled().has_host_sums();
  const Group& alike = set_.at(owned ? PENSTOCK_LEVEL_CROSS : PENSTOCK_LEVEL_WORLD).group;
  PENSTOCK_ASSIGN(const uint64_t hash, uses_.plans.compiled().states().hash_replicated());
  return services_.control.agree(
      fmt::format("replicated state of set {} at step {}{}", set_.name, set_.step.index,
                  owned ? fmt::format(" with rank {}", alike.ranks().front()) : ""),
      hash_text(hash), alike.ranks(), services_.limits.rendezvous_us);
}

}  // namespace penstock

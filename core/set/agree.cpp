// Ranks that would go on from different states are told before anything of the step moves: after a
// load, and at a set's first step, for a rank that did not load cannot know that another one did.

#include "core/base/hash.hpp"
#include "core/bucket/engine.hpp"
#include "core/set/set.hpp"

namespace penstock {

// Called with the lock held. True once: ask_for_states is next.
bool Set::must_ask() {
  if (agreement_ != Agreement::needed) return false;
  agreement_ = Agreement::asked;
  return true;
}

// Asks and returns; until the answer the buckets of the step are held. Not with the lock held:
// where the run was given up the answer comes on this thread.
void Set::ask_for_states() {
  uint64_t number = 0;
  OperationRequest request;
  {
    std::lock_guard lock(mutex_);
    number = ++agreements_;
    std::string carries;
    for (const auto& gradient : gradients_)
      if (gradient->has_carry) carries += gradient->name + '\n';
    request.name = fmt::format("penstock set-up: where set '{}' goes on ({})", name, number);
    request.ranks = group_.ranks();
    request.holds = name;
    request.signature =
        fmt::format("next step {}{}\nplan {}, left to add {}\n", step.index,
                    loaded_ ? " of a loaded state" : "", hash_text(hash64(plan_bytes(works_->plan()))),
                    hash_text(hash64(carries)));
  }
  if (loaded_)
    services_.control.note(fmt::format(
        "loaded step {} into set '{}', waits for the others to load it too", step.index, name));
  services_.control.request(std::move(request),
                            [guard = guard_, number](Status status, const OperationResponse&) {
                              std::lock_guard lock(guard->mutex);
                              if (guard->set != nullptr)
                                guard->set->states_compared(number, std::move(status));
                            });
}

Status Set::alone_after_load(const Status& reason) const {
  return reason.with_context(
      fmt::format("set '{}' has loaded step {} and waited for the other ranks to load it too", name,
                  step.index));
}

// [watch] The answer.
void Set::states_compared(uint64_t number, Status status) {
  std::lock_guard lock(mutex_);
  if (number != agreements_ || agreement_ != Agreement::asked) return;  // of before another load
  if (!status.ok()) {
    if (status.code() == Code::mismatch)
      status = mismatch(
          "set '{}': the ranks would go on from different states ({}); each rank saves and loads "
          "its "
          "own: load that of one step on every rank, or on none",
          name, status.message());
    else if (loaded_)
      status = alone_after_load(status);
    if (torn_.ok()) torn_ = std::move(status);
    changed_.notify_all();
    return;
  }
  agreement_ = Agreement::reached;
  loaded_ = false;
  for (BucketRun* bucket : held_) start(*bucket);
  held_.clear();
}

}  // namespace penstock

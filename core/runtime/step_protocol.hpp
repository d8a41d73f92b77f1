// The step of a set as its frontends perform it. It records the gradients that backward has
// completed, the gradients held in the first step, the beginning of a step, the gradients still to
// be handed in, and whether all results were waited for. Every frontend asks here instead of
// keeping its own records; <penstock/runtime.h>, "The step of an optimizer", has the calls.
//
// A frontend that never calls begin() may still wait and end here. The phase then stays IDLE, and
// the calls go straight to the set. The phases:
//
//   IDLE or HELD   begin: OPEN
//   OPEN           all results waited for: SYNCHRONIZED; backward_end: DEFERRED
//   SYNCHRONIZED   end: IDLE
//   DEFERRED       all results waited for, which ends the step as applied: IDLE
#pragma once

#include "core/base/mutex.hpp"
#include "core/set/set.hpp"

#include <string>
#include <vector>

namespace penstock {

class StepProtocol {
 public:
  // `set` must outlive it; `names` are the names of the set's gradients.
  StepProtocol(Set& set, std::vector<std::string> names);

  // [application] `passes` backward passes make a step. `n_beside`: number of gradients that are
  // exchanged beside the set and counted with its own gradients.
  Status set_passes(uint32_t passes, uint64_t n_beside);
  // [any] Threads may report different gradients at once, but never one gradient twice. `tensor`
  // may be null. `todo`: the action that the frontend must take, PENSTOCK_GRADIENT_*.
  Status came(uint64_t index, const penstock_tensor* tensor, void* stream, uint32_t& todo);
  Status begin();
  // The held gradients in the order of their arrival, then the gradients that did not come.
  std::vector<uint64_t> rest();
  uint32_t phase();  // PENSTOCK_PHASE_*
  bool has_come();   // whether a gradient has come since the results were last waited for
  // Forgets which gradients have come and were waited for; see penstock_step_restart.
  void restart();

  // The set's own calls, which also advance the step.
  Status wait(uint64_t index);
  Status wait_stream(uint64_t index, void* stream);
  Status wait_all();
  Status backward_end();
  Status end(uint32_t outcome);
  Status let_go() { return or_stay(set_.let_go()); }
  Status load(std::string_view bytes) { return or_stay(set_.load(bytes)); }
  Status load_shards(std::span<const std::string_view> shards, std::string& said) {
    return or_stay(set_.load_shards(shards, said));
  }
  Status reset() { return or_stay(set_.reset()); }

 private:
  struct Progress {
    // Backward passes that have added to the gradient; it has come when this equals passes_.
    uint32_t passes = 0;
    bool was_waited_for = false;
  };

  std::string name_of(uint64_t index) const;
  Status count(uint64_t index, uint32_t& todo);
  void rewind() PENSTOCK_REQUIRES(mutex_);
  Status waited_for(uint64_t index);
  Status all_were_waited_for();
  Status or_stay(Status replaced);

  Set& set_;
  const std::vector<std::string> names_;
  Mutex mutex_;
  std::vector<Progress> gradients_
      // Gradients of the set, then gradients that are exchanged beside it.
      PENSTOCK_GUARDED_BY(mutex_);
  uint32_t passes_ PENSTOCK_GUARDED_BY(mutex_) = 1;  // backward passes that make a step
  uint32_t phase_ PENSTOCK_GUARDED_BY(mutex_) = PENSTOCK_PHASE_IDLE;
  bool holds_ PENSTOCK_GUARDED_BY(mutex_) = true;  // true in the first step
  bool has_come_ PENSTOCK_GUARDED_BY(mutex_) = false;
  std::vector<uint64_t> held_ PENSTOCK_GUARDED_BY(mutex_);  // in the order of their arrival
  uint64_t n_waited_for_ PENSTOCK_GUARDED_BY(mutex_) = 0;
};

}  // namespace penstock

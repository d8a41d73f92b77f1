// Ranks that would go on from different states are told before anything of the step moves: after a
// load, and at a set's first step, for a rank that did not load cannot know that another one did.
#pragma once

#include "core/base/mutex.hpp"
#include "core/set/step.hpp"

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace penstock {

// What ranks compare before `step`: the step, the plan, `how` they have come to it (loaded, reset),
// and the gradients that have a carry.
std::string where_to_go_on(uint64_t step, const Plan& plan, std::string_view how = "",
                           std::string_view left_to_add = "");

class Agreement {
 public:
  // All outlive it.
  Agreement(const Services& services, const std::string& set, const Group& group, Step& step)
      : services_(services),
        set_(set),
        group_(group),
        step_(step),
        guard_(std::make_shared<Guard>()) {
    guard_->agreement = this;
  }

  // [control] Buckets of the next step are held until all ranks have said where they go on, and
  // have said the same; a rank alone asks nobody. `loaded`: the step of a state that was loaded.
  void need(std::string where, std::optional<uint64_t> loaded);
  // [any] The run was given up for `reason`. Adds what that means while ranks wait for their
  // agreement.
  Status explain(const Status& reason) const;
  // [control] An answer that comes later is not looked at.
  void end();

 private:
  // For the answer, which may come when the set is gone.
  struct Guard {
    Mutex mutex;
    Agreement* agreement PENSTOCK_GUARDED_BY(mutex) = nullptr;  // null: gone
  };
  // Unchecked: clang's analysis cannot see that both are the same mutex.
  static void hear(Guard& guard, uint64_t number, Status status) PENSTOCK_UNCHECKED_LOCKS;
  void ask();
  void answered(uint64_t number, Status status) PENSTOCK_REQUIRES(guard_->mutex);
  Status alone(const Status& reason) const PENSTOCK_REQUIRES(guard_->mutex);

  const Services& services_;
  const std::string& set_;
  const Group& group_;
  Step& step_;
  const std::shared_ptr<Guard> guard_;
  std::string where_ PENSTOCK_GUARDED_BY(guard_->mutex);
  std::optional<uint64_t> loaded_ PENSTOCK_GUARDED_BY(guard_->mutex);
  bool asked_ PENSTOCK_GUARDED_BY(guard_->mutex) = false;
  uint64_t number_ PENSTOCK_GUARDED_BY(guard_->mutex) = 0;
};

}  // namespace penstock

// Compares the states from which the ranks of a set go on, before any data of the step moves:
// after a load, and at the set's first step. The first step is included because a rank that did
// not load cannot know that another rank did. Also compares texts of the frontend beside a step.
#pragma once

#include "core/base/mutex.hpp"
#include "core/set/step.hpp"

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace penstock {

// Returns the text that ranks compare before `step`: the step, `how` the rank has come to it
// (" of a loaded state" or empty), the plan, and `left_to_add`, the names of the gradients with a
// carry.
std::string where_to_go_on(uint64_t step, const Plan& plan, std::string_view how = "",
                           std::string_view left_to_add = "");

class Agreement {
 public:
  // The arguments must outlive the object.
  Agreement(const Services& services, const std::string& set, const Group& group, Step& step)
      : services_(services),
        set_(set),
        group_(group),
        step_(step),
        guard_(std::make_shared<Guard>()) {
    guard_->agreement = this;
  }

  // [control] Holds the buckets of the next step until all ranks have sent their text `where` and
  // all texts are equal. In a set of one rank it does nothing. `loaded`: the step of a state that
  // was loaded.
  void need(std::string where, std::optional<uint64_t> loaded);
  // [control] Compares `text` with the texts of the other ranks, without waiting. Every rank calls
  // it in the same steps.
  void compare(std::string text);
  // [control] Waits for the answers. MISMATCH if texts have differed since the last call, or the
  // reason why there is no answer.
  Status compared();
  // [any] The run was given up for `reason`. Returns it; if this rank has loaded a state and waits
  // for the other ranks to load it too, the message says so.
  Status explain(const Status& reason) const;
  // [control] The set ends: a later answer is ignored.
  void end();

 private:
  // Shared with the callback of the answer, which may come after the end of the set.
  struct Guard {
    Mutex mutex;
    Condition answered;
    Agreement* agreement PENSTOCK_GUARDED_BY(mutex) = nullptr;  // null: gone
    uint64_t n_open PENSTOCK_GUARDED_BY(mutex) = 0;             // texts without an answer
    Status difference PENSTOCK_GUARDED_BY(mutex);
  };
  // Unchecked: clang's analysis cannot see that guard.mutex and guard_->mutex are one mutex.
  static void hear(Guard& guard, uint64_t number, Status status) PENSTOCK_UNCHECKED_LOCKS;
  static void hear_of_text(Guard& guard, Status status);
  void ask();
  void answered(uint64_t number, Status status) PENSTOCK_REQUIRES(guard_->mutex);
  Status only_here(const Status& reason) const PENSTOCK_REQUIRES(guard_->mutex);

  const Services& services_;
  const std::string& set_;
  const Group& group_;
  Step& step_;
  const std::shared_ptr<Guard> guard_;
  std::string where_ PENSTOCK_GUARDED_BY(guard_->mutex);
  std::optional<uint64_t> loaded_ PENSTOCK_GUARDED_BY(guard_->mutex);
  bool asked_ PENSTOCK_GUARDED_BY(guard_->mutex) = false;
  uint64_t number_ PENSTOCK_GUARDED_BY(guard_->mutex) = 0;
  uint64_t n_compared_ = 0;
};

}  // namespace penstock

// A rank without further data. It stays, adds zeros to the sums of other ranks, and takes part in
// the steps of its sets when other ranks announce them, until all ranks have joined.

#include "core/base/mutex.hpp"
#include "core/runtime/runtime.hpp"
#include "core/set/set.hpp"

#include <chrono>
#include <deque>
#include <optional>

namespace penstock {

// Keeps the news from Control until the application thread takes them.
class Joined {
 public:
  void add(StepNotice step) {
    const Lock lock(mutex_);
    steps_.push_back(std::move(step));
    changed_.notify_one();
  }
  void end(Status status, uint32_t last_rank) {
    const Lock lock(mutex_);
    ended_ = std::move(status);
    last_rank_ = last_rank;
    changed_.notify_one();
  }
  // The next step. Empty if the join has ended and no step is left, or if `until` has passed.
  std::optional<StepNotice> next(std::chrono::steady_clock::time_point until) {
    Lock lock(mutex_);
    changed_.wait_until(mutex_, until,
                        [this]() PENSTOCK_REQUIRES(mutex_) { return ended_ || !steps_.empty(); });
    if (steps_.empty()) return std::nullopt;
    StepNotice step = std::move(steps_.front());
    steps_.pop_front();
    return step;
  }
  std::optional<Status> ended(uint32_t& last_rank) {
    const Lock lock(mutex_);
    last_rank = last_rank_;
    return ended_;
  }

 private:
  Mutex mutex_;
  Condition changed_;
  std::deque<StepNotice> steps_ PENSTOCK_GUARDED_BY(mutex_);
  std::optional<Status> ended_ PENSTOCK_GUARDED_BY(mutex_);
  uint32_t last_rank_ PENSTOCK_GUARDED_BY(mutex_) = 0;
};

Status Runtime::join(uint64_t patience_us, uint32_t& last_rank) {
  if (!joining_mutex_.try_lock())
    return failed_precondition("rank {} has joined on another thread already", world_.rank());
  const Lock joining(joining_mutex_, std::adopt_lock);
  if (while_joined_ == nullptr) {
    const Lock lock(mutex_);
    for (Set* set : sets_)
      if (set->joined().under_way())
        return failed_precondition(
            "rank {} joins in the middle of a step of set '{}': end the step first", world_.rank(),
            set->name);
  }
  if (while_joined_ == nullptr) while_joined_ = begin_to_join();
  const auto until = std::chrono::steady_clock::now() +
                     std::chrono::microseconds(patience_us != 0 ? patience_us : kYearUs);
  while (const std::optional<StepNotice> notice = while_joined_->next(until)) {
    // Errors that all ranks get at the end of a step are reported by the other ranks.
    const Status status = take_part(*notice);
    if (!status.ok() && state().ok())
      log_.write(LogLevel::warning, "runtime", fmt::format("joined: {}", status.message()));
  }
  const std::optional<Status> ended = while_joined_->ended(last_rank);
  if (!ended) {
    last_rank = PENSTOCK_NO_RANK;
    return {};
  }
  while_joined_.reset();
  return ended->ok() ? *ended : ended->with_context("join");
}

std::shared_ptr<Joined> Runtime::begin_to_join() {
  const auto joined = std::make_shared<Joined>();
  control_->note("joined: its data is at an end");
  control_->join(
      {.sum =
           [this](WhileJoined::Sum sum) {
             const Lock lock(mutex_);
             if (operations_ != nullptr) operations_->add_zeros(std::move(sum));
           },
       .step = [joined](StepNotice step) { joined->add(std::move(step)); },
       .ended = [joined](Status status,
                         uint32_t last_rank) { joined->end(std::move(status), last_rank); }});
  return joined;
}

Status Runtime::take_part(const StepNotice& notice) {
  Set* found = nullptr;
  {
    const Lock lock(mutex_);
    for (Set* set : sets_)
      if (set->name == notice.set) found = set;
  }
  if (found == nullptr) {
    const Status status = failed_precondition(
        "rank {} has joined and has no set '{}' any more, but other ranks make step {} of that set",
        world_.rank(), notice.set, notice.step);
    give_up(status);
    return status;
  }
  if (notice.over) return found->joined().end(notice.step, notice.facts);
  const Status begun = found->joined().begin_with_zeros(notice.step, notice.facts);
  // Other ranks wait for this rank's part.
  if (!begun.ok() && state().ok()) give_up(begun);
  return begun;
}

// [watch]
void Runtime::tell_where() {
  const Lock lock(mutex_);
  for (Set* set : sets_) set->joined().tell_where();
}

}  // namespace penstock

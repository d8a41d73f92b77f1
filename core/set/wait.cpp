// Waiting for results, and the end of a set that may be in the middle of a step.

#include "core/bucket/engine.hpp"
#include "core/set/set.hpp"

#include <chrono>

namespace penstock {
namespace {

// A wait this long is worth a question to the others, and no hurry any more.
constexpr std::chrono::milliseconds kPatience{300};

}  // namespace

// ---- the end of a set ----

bool Set::end() {
  {
    std::lock_guard lock(guard_->mutex);
    guard_->set = nullptr;
  }
  say_end();
  // Legs that wait for a forward that never comes are let go, and so is what waits for its turn
  // after messages that never go out: every job ends, unless another rank or a plugin call keeps
  // it.
  launch_deferred();
  std::unique_lock lock(mutex_);
  skip_what_never_started();
  const auto idle = [&] { return running_ == 0; };
  const auto for_us = [](uint64_t us) { return std::chrono::microseconds(us); };
  if (services_.state().ok() &&
      !changed_.wait_for(lock, for_us(services_.limits.deadline_us), idle)) {
    lock.unlock();
    services_.run.give_up(
        aborted("set '{}' was destroyed in the middle of step {}, which other ranks "
                "have not come to within {} s",
                name, step.index, double(services_.limits.deadline_us) * 1e-6));
    lock.lock();
  }
  const bool ended = changed_.wait_for(lock, for_us(services_.limits.end_us), idle);
  lock.unlock();
  if (!ended || !services_.run.answers()) {
    services_.run.abandon(fmt::format("set '{}'", name));
    return false;
  }
  for (auto channel = open_channels_.rbegin(); channel != open_channels_.rend(); ++channel)
    services_.communication.close_channel(*channel);
  return true;
}

void SetCloser::operator()(Set* set) const {
  if (set->end()) delete set;
}

Set::~Set() {
  services_.run.forget(this);
}

// ---- waiting ----

// It takes long: Control says by name who is waited for, and ends the wait when it is hopeless.
void Set::wait_for_others(std::unique_lock<std::mutex>& lock, const std::function<bool()>& over) {
  const uint64_t index = step.index;
  lock.unlock();
  const uint64_t wait = services_.control.step_wait(name, index, group_.ranks(),
                                                    [&run = services_.run](const Status& reason) {
                                                      if (!reason.ok()) run.give_up(reason);
                                                    });
  lock.lock();
  changed_.wait(lock, over);
  lock.unlock();
  services_.control.step_wait_over(wait);
  lock.lock();
}

Status Set::wait_until(const std::function<bool()>& finished, std::string_view what,
                       Gradient* awaited) {
  const uint64_t start = now_us();
  const Stage stage(timeline, what, "application", step.index);
  std::unique_lock lock(mutex_);
  if (!finished() && torn_.ok()) {
    ++waiters_;
    if (awaited != nullptr) ++awaited->waiters;
    communication->set_waiting(true);
    const auto over = [&] { return finished() || !torn_.ok(); };
    activity_->at(Activity::Phase::waits, step.index);
    if (!changed_.wait_for(lock, kPatience, over)) wait_for_others(lock, over);
    if (awaited != nullptr) --awaited->waiters;
    if (--waiters_ == 0) communication->set_waiting(false);
  }
  totals_.wait_us += now_us() - start;
  told_ = told_ || !torn_.ok();
  const Status status = torn_;
  lock.unlock();
  warn_of_nonfinite();
  return status;
}

Status Set::wait(uint64_t index) {
  if (index >= gradients_.size())
    return invalid_argument("set '{}' has no gradient {}", name, index);
  PENSTOCK_TRY(close());
  launch_deferred();
  // Two words of capture: std::function keeps them without allocating.
  const auto finished = [this, index] {
    return gradients_[index]->stage == Gradient::Stage::done || works_->of(step.phase, index).empty();
  };
  return wait_until(finished, "wait", gradients_[index].get());
}

Status Set::wait_all() {
  PENSTOCK_TRY(close());
  launch_deferred();
  return wait_until([&] { return buckets_left_ == 0; }, "wait");
}

Status Set::poll(uint64_t index, bool& done) {
  std::lock_guard lock(mutex_);
  if (index >= gradients_.size())
    return invalid_argument("set '{}' has no gradient {}", name, index);
  done = gradients_[index]->stage == Gradient::Stage::done || !torn_.ok();
  return {};
}

Status Set::backward_end() {
  PENSTOCK_TRY(close());
  PENSTOCK_TRY(wait_until([&] { return first_legs_left_ == 0; }, "wait"));
  launch_deferred();
  return {};
}

Status Set::flush() {
  {
    std::lock_guard lock(mutex_);
    PENSTOCK_TRY(usable());
    if (!opened_ && !closed_) return {};  // between two steps: nothing is under way
  }
  return wait_all();
}

}  // namespace penstock

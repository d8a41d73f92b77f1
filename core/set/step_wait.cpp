// What the application waits for in a step: the first wait closes it. Results on devices are waited
// for twice, until their copies are queued and until these have ended.

#include "core/bucket/engine.hpp"
#include "core/set/step.hpp"

#include <algorithm>
#include <chrono>

namespace penstock {
namespace {

// A wait this long is worth a question to the others, and no hurry any more.
constexpr std::chrono::milliseconds kPatience{300};
// Between two looks at a copy back. It is short where anybody waits for it: all else is done.
constexpr std::chrono::microseconds kBetweenLooks{50};

}  // namespace

Status Step::close() {
  Lock lock(mutex_);
  PENSTOCK_TRY(usable());
  if (!closed_ && opened_ && context_.timeline->enabled())
    context_.timeline->add(
        {"backward", "application", first_ready_us_, now_us(), context_.step.index, {}, 0, 0});
  closed_ = true;
  const Gradient* failed = nullptr;
  Status failure;
  for (auto& gradient : gradients_) {
    if (gradient->progress != Gradient::Progress::open ||
        works_->of(context_.step.phase, gradient->index).empty())
      continue;
    if (DeviceSide* side = gradient->device_side) {
      failed = gradient.get();
      failure = side->take_zeros(nullptr);
      if (!failure.ok()) break;
      make_ready(*gradient, side->work_place());
      continue;
    }
    const uint64_t bytes = gradient->bytes();
    if (gradient->unclaimed.bytes() != bytes) gradient->unclaimed = Buffer(bytes);
    if (bytes != 0) std::memset(gradient->unclaimed.data(), 0, bytes);
    make_ready(*gradient, gradient->unclaimed.data());
  }
  const std::function<void()> ask = question();
  lock.unlock();
  if (ask) ask();
  return failure.ok() ? failure : give_up(*failed, failure);
}

// A device has failed in the middle of a step: the other ranks wait for what will not come. Without
// the lock.
Status Step::give_up(const Gradient& gradient, const Status& failure) {
  const Status named = failure.with_context(fmt::format(
      "set '{}', step {}, gradient '{}'", context_.name, context_.step.index, gradient.name));
  services_.run.give_up(named);
  told();
  return named;
}

// It takes long: Control says by name who is waited for, and ends the wait when it is hopeless.
void Step::wait_for_others(const std::function<bool()>& over) {
  const uint64_t index = context_.step.index;
  mutex_.unlock();
  const uint64_t wait = services_.control.step_wait(context_.name, index, group_.ranks(),
                                                    [&run = services_.run](const Status& reason) {
                                                      if (!reason.ok()) run.give_up(reason);
                                                    });
  mutex_.lock();
  changed_.wait(mutex_, over);
  mutex_.unlock();
  services_.control.step_wait_over(wait);
  mutex_.lock();
}

Status Step::wait_until(const std::function<bool()>& finished, Gradient* awaited) {
  const uint64_t start = now_us();
  Lock lock(mutex_);
  const TimedSpan span(context_.timeline, "wait", "application", context_.step.index);
  if (!finished() && torn_.ok()) {
    ++waiters_;
    if (awaited != nullptr) ++awaited->waiters;
    context_.communication->set_waiting(true);
    const auto over = [&]() PENSTOCK_REQUIRES(mutex_) { return finished() || !torn_.ok(); };
    activity_->at(Activity::Phase::waits, context_.step.index);
    if (!changed_.wait_for(mutex_, kPatience, over)) wait_for_others(over);
    if (awaited != nullptr) --awaited->waiters;
    if (--waiters_ == 0) context_.communication->set_waiting(false);
  }
  waited_us_ += now_us() - start;
  told_ = told_ || !torn_.ok();
  return torn_;
}

// ---- results ----

// The bucket's job has ended: the result lies in the gradient's storage, or its copy is queued.
Status Step::wait_until_queued(uint64_t index) {
  if (index >= gradients_.size())
    return invalid_argument("set '{}' has no gradient {}", context_.name, index);
  PENSTOCK_TRY(close());
  launch_deferred();
  // Two words of capture: std::function keeps them without allocating.
  const auto finished = [this, index] {
    return gradients_[index]->progress == Gradient::Progress::done ||
           works_->of(context_.step.phase, index).empty();
  };
  return wait_until(finished, gradients_[index].get());
}

// Looks from time to time instead of waiting on the device: the end of a run ends this wait too.
Status Step::wait_until_returned(Gradient& gradient) {
  if (gradient.device_side == nullptr) return {};
  const uint64_t start = now_us();
  for (;;) {
    bool returned = false;
    const Status looked = gradient.device_side->has_returned(returned);
    if (!looked.ok()) return give_up(gradient, looked);
    Lock lock(mutex_);
    const auto is_torn = [this]() PENSTOCK_REQUIRES(mutex_) { return !torn_.ok(); };
    if (!returned && !changed_.wait_for(mutex_, kBetweenLooks, is_torn)) continue;
    waited_us_ += now_us() - start;
    gradient.waited_for = true;
    told_ = told_ || !torn_.ok();
    return torn_;
  }
}

Status Step::wait_until_all_queued() {
  PENSTOCK_TRY(close());
  launch_deferred();
  return wait_until([this]() PENSTOCK_REQUIRES(mutex_) { return buckets_left_ == 0; });
}

Status Step::wait(uint64_t index) {
  PENSTOCK_TRY(wait_until_queued(index));
  return wait_until_returned(*gradients_[index]);
}

Status Step::wait_all() {
  PENSTOCK_TRY(wait_until_all_queued());
  if (context_.has_devices)
    for (auto& gradient : gradients_) PENSTOCK_TRY(wait_until_returned(*gradient));
  return {};
}

Status Step::wait_for_rest() {
  PENSTOCK_TRY(wait_until_all_queued());
  if (context_.has_devices)
    for (auto& gradient : gradients_)
      if (!gradient->waited_for) PENSTOCK_TRY(wait_until_returned(*gradient));
  return {};
}

Status Step::wait_stream(uint64_t index, void* stream) {
  PENSTOCK_TRY(wait_until_queued(index));
  Gradient& gradient = *gradients_[index];
  if (gradient.device_side == nullptr) return {};
  const Status queued = gradient.device_side->hold_back_until_returned(stream);
  if (!queued.ok()) return give_up(gradient, queued);
  gradient.waited_for = true;
  return {};
}

Status Step::wait_backward() {
  PENSTOCK_TRY(close());
  PENSTOCK_TRY(
      wait_until([this]() PENSTOCK_REQUIRES(mutex_) { return backward_parts_left_ == 0; }));
  launch_deferred();
  return {};
}

Status Step::poll(uint64_t index, bool& done) {
  const Lock lock(mutex_);
  if (index >= gradients_.size())
    return invalid_argument("set '{}' has no gradient {}", context_.name, index);
  const Gradient& gradient = *gradients_[index];
  done = gradient.progress == Gradient::Progress::done || !torn_.ok();
  if (!done || gradient.device_side == nullptr) return {};
  bool returned = true;  // also where the device fails, which is for a wait to say
  (void)gradient.device_side->has_returned(returned);
  done = returned || !torn_.ok();
  return {};
}

Status Step::on_result(void* context, penstock_result_sink sink) {
  const Lock lock(mutex_);
  if (opened_ || closed_)
    return failed_precondition("set '{}' is in the middle of step {}: end the step first",
                               context_.name, context_.step.index);
  results_.tell_to(sink, context, gradients_.size());
  context_.results_are_told = results_.are_told();
  if (sink != nullptr) stand_in_.start([this](uint64_t step) { wait_in_place(step); });
  return {};
}

void Step::wait_in_place(uint64_t attempt) {
  (void)wait_until([this, attempt]() PENSTOCK_REQUIRES(mutex_) {
    return buckets_left_ == 0 || context_.attempt != attempt;
  });
}

}  // namespace penstock

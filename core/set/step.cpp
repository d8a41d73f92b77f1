#include "core/set/step.hpp"

#include "core/bucket/engine.hpp"
#include "core/bucket/exchange.hpp"
#include "core/set/handed_in.hpp"
#include "core/set/phase.hpp"

#include <algorithm>
#include <chrono>

namespace penstock {

void Step::arm(CompiledPlan& compiled) {
  const Lock lock(mutex_);
  compiled_ = &compiled;
  penstock_step& step = context_.step;
  step.phase = static_cast<uint32_t>(step.index % compiled.period());
  activity_->done(context_.attempt);
  left_ = rearm(compiled, step.phase, gradients_);
  closed_ = opened_ = false;
  gate_.drop_held();
  forward_legs_.arm(compiled.forward_legs(step.phase));
}

Status Step::usable() {
  if (torn_.ok()) return {};
  if (!std::exchange(cause_returned_, true)) return torn_;
  return failed_precondition(
      "set '{}' is torn: an earlier step failed ({}); start again, then load a saved state",
      context_.name, torn_.message());
}

// ---- gradients ----

void Step::make_ready(Gradient& gradient, void* data) {
  gradient.progress = Gradient::Progress::ready;
  gradient.data = data;
  gradient.ready_us = now_us();
  gradient.place = gradients_.size() - left_.gradients;
  if (!opened_) {
    opened_ = true;
    first_ready_us_ = gradient.ready_us;
    activity_->at(Activity::Phase::computes, context_.step.index);
    if (services_.control.somebody_joined()) notify_begun();
  }
  const uint32_t phase = context_.step.phase;
  for (BucketRun* bucket : compiled_->of(phase, gradient.index))
    if (bucket->gradients_missing.fetch_sub(1) == 1 && bucket->plan.launch == PENSTOCK_LAUNCH_READY)
      start(*bucket);
  if (--left_.gradients == 0) all_are_ready();
}

void Step::all_are_ready() {
  for (auto& bucket : compiled_->phase(context_.step.phase))
    if (bucket->plan.launch != PENSTOCK_LAUNCH_READY) start(*bucket);
  if (results_.are_notified()) waiter_.wake(context_.attempt);
}

void Step::start(BucketRun& bucket) {
  if (!gate_.lets_pass(bucket)) return;
  bucket.started = true;
  ++running_;
  context_.engine->start(bucket);
}

Status Step::ready(uint64_t index, const penstock_tensor& tensor, void* stream) {
  return hand_in(index, tensor, stream, false);
}

Status Step::absent(uint64_t index, const penstock_tensor& tensor) {
  if (index < gradients_.size()) zero_if_here(*gradients_[index], tensor);
  return hand_in(index, tensor, nullptr, true);
}

Status Step::hand_in(uint64_t index, const penstock_tensor& tensor, void* stream, bool is_zero) {
  Lock lock(mutex_);
  PENSTOCK_TRY(usable());
  if (index >= gradients_.size())
    return invalid_argument("set '{}' has {} gradients, there is no gradient {}", context_.name,
                            gradients_.size(), index);
  Gradient& gradient = *gradients_[index];
  PENSTOCK_TRY(check_handed_in(gradient, tensor));
  if (closed_)
    return failed_precondition(
        "gradient '{}' became ready in step {} after a wait had closed it: end the step first",
        gradient.name, context_.step.index);
  if (gradient.progress != Gradient::Progress::open)
    return failed_precondition(
        "gradient '{}' became ready twice in step {}: one backward pass per step, or accumulate "
        "before",
        gradient.name, context_.step.index);
  const bool is_there = compiled_->of(context_.step.phase, index).empty();
  void* data = tensor.data;
  if (DeviceSide* side = gradient.on_device.side; side != nullptr && !is_there) {
    const Status queued = is_zero ? side->take_zeros(tensor.data) : side->take(tensor.data, stream);
    if (!queued.ok()) {
      lock.unlock();
      return give_up(gradient, queued);
    }
    data = side->work_place();
  }
  make_ready(gradient, data);
  const std::function<void()> ask = gate_.take_question();
  const ResultListener listener = results_.listener();
  lock.unlock();
  if (ask) ask();
  if (is_there) listener.tell(index);
  return {};
}

Status Step::set_grad_scale(double grad_scale) {
  const Lock lock(mutex_);
  if (opened_ && grad_scale > 0)
    return failed_precondition("grad_scale of set '{}' is set in the middle of step {}",
                               context_.name, context_.step.index);
  return rates_.set_scale(grad_scale);
}

// ---- the gate ----

void Step::release() {
  const Lock lock(mutex_);
  for (BucketRun* bucket : gate_.open()) start(*bucket);
}

// ---- joined ranks ----

void Step::notify_begun() const {
  services_.control.notify_step(
      {context_.name, group_.ranks(), context_.attempt, false, rates_.facts()});
}

void Step::tell_where() {
  const Lock lock(mutex_);
  if (opened_) notify_begun();
}

Status Step::begin_with_zeros(std::string_view facts) {
  PENSTOCK_TRY(rates_.take(facts));
  PENSTOCK_TRY(close());
  launch_deferred();
  return {};
}

// ---- the waits of the application ----

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
        compiled_->of(context_.step.phase, gradient->index).empty())
      continue;
    if (DeviceSide* side = gradient->on_device.side) {
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
  const std::function<void()> ask = gate_.take_question();
  lock.unlock();
  if (ask) ask();
  return failure.ok() ? failure : give_up(*failed, failure);
}

// A device has failed in the middle of a step: the other ranks wait for messages that will not
// come. The caller must not hold the lock.
Status Step::give_up(const Gradient& gradient, const Status& failure) {
  const Status named = failure.with_context(fmt::format(
      "set '{}', step {}, gradient '{}'", context_.name, context_.step.index, gradient.name));
  services_.run.give_up(named);
  cause_returned();
  return named;
}

// A long wait. Control names the ranks that are waited for, and ends the wait if it is hopeless.
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
  cause_returned_ = cause_returned_ || !torn_.ok();
  return torn_;
}

Status Step::wait_until_ended(uint64_t index) {
  if (index >= gradients_.size())
    return invalid_argument("set '{}' has no gradient {}", context_.name, index);
  PENSTOCK_TRY(close());
  launch_deferred();
  // Two words of capture: std::function keeps them without allocating.
  const auto finished = [this, index] {
    return gradients_[index]->progress == Gradient::Progress::done ||
           compiled_->of(context_.step.phase, index).empty();
  };
  return wait_until(finished, gradients_[index].get());
}

Status Step::wait_until_all_ended() {
  PENSTOCK_TRY(close());
  launch_deferred();
  return wait_until([this]() PENSTOCK_REQUIRES(mutex_) { return left_.buckets == 0; });
}

Status Step::wait_until_backward_ended() {
  PENSTOCK_TRY(close());
  PENSTOCK_TRY(
      wait_until([this]() PENSTOCK_REQUIRES(mutex_) { return left_.backward_parts == 0; }));
  launch_deferred();
  return {};
}

bool Step::rest(std::chrono::microseconds time) {
  Lock lock(mutex_);
  return changed_.wait_for(mutex_, time,
                           [this]() PENSTOCK_REQUIRES(mutex_) { return !torn_.ok(); });
}

Status Step::returned(Gradient& gradient, uint64_t start_us) {
  const Lock lock(mutex_);
  waited_us_ += now_us() - start_us;
  gradient.waited_for = true;
  cause_returned_ = cause_returned_ || !torn_.ok();
  return torn_;
}

Status Step::poll(uint64_t index, bool& done) {
  const Lock lock(mutex_);
  if (index >= gradients_.size())
    return invalid_argument("set '{}' has no gradient {}", context_.name, index);
  done = gradients_[index]->progress == Gradient::Progress::done || !torn_.ok();
  return {};
}

Status Step::on_result(void* context, penstock_result_sink sink) {
  const Lock lock(mutex_);
  if (opened_ || closed_)
    return failed_precondition("set '{}' is in the middle of step {}: end the step first",
                               context_.name, context_.step.index);
  results_.tell_to({sink, context}, gradients_.size());
  context_.results_are_notified = results_.are_notified();
  if (sink != nullptr) waiter_.start([this](uint64_t step) { wait_in_place(step); });
  return {};
}

void Step::wait_in_place(uint64_t attempt) {
  (void)wait_until([this, attempt]() PENSTOCK_REQUIRES(mutex_) {
    return left_.buckets == 0 || context_.attempt != attempt;
  });
}

// ---- the engine's reports ----

void Step::backward_part_ended(BucketRun&) {
  const Lock lock(mutex_);
  if (--left_.backward_parts == 0) changed_.notify_all();
}

void Step::bucket_ended(BucketRun& bucket, const Status& status) {
  Status failure = status;
  if (!failure.ok()) {
    failure = failure.with_context(
        fmt::format("set '{}', step {}, {}", context_.name, context_.step.index, bucket.label));
    // Other ranks wait for this rank's next message, which will not come.
    services_.run.give_up(failure);
  }
  Lock lock(mutex_);
  if (torn_.ok()) torn_ = failure;
  forward_legs_.arrived(bucket);
  // A waiting thread is woken by the gradient that it waits for, not by every bucket.
  bool awaited = !failure.ok();
  std::vector<uint64_t>& ended = results_.ended();
  ended.clear();
  for (const PieceRun& piece : bucket.pieces) {
    Gradient& gradient = *piece.gradient;
    if (--gradient.pieces_left != 0) continue;
    gradient.progress = Gradient::Progress::done;
    awaited |= gradient.waiters != 0;
    if (results_.are_notified()) ended.push_back(gradient.index);
  }
  if (torn_.ok() && !ended.empty()) {
    const ResultListener listener = results_.listener();
    lock.unlock();
    listener.tell(ended);
    lock.lock();
  }
  if (--left_.buckets == 0 && torn_.ok()) activity_->done(context_.attempt + 1);
  --running_;
  if (awaited || left_.buckets == 0 || running_ == 0) changed_.notify_all();
}

// ---- the end ----

void Step::tear(const Status& reason) {
  Lock lock(mutex_);
  if (!torn_.ok()) return;
  torn_ = reason;
  changed_.notify_all();
  std::vector<uint64_t> lost;
  for (const auto& gradient : gradients_)
    if (gradient->progress == Gradient::Progress::ready &&
        !compiled_->of(context_.step.phase, gradient->index).empty())
      lost.push_back(gradient->index);
  const ResultListener listener = results_.listener();
  lock.unlock();
  listener.tell(lost, reason);
}

Status Step::failure() {
  const Lock lock(mutex_);
  return usable();
}

bool Step::wait_until_idle(uint64_t limit_us) {
  Lock lock(mutex_);
  return changed_.wait_for(mutex_, std::chrono::microseconds(limit_us),
                           [this]() PENSTOCK_REQUIRES(mutex_) { return running_ == 0; });
}

// On ORDERED channels later messages wait for the turns of buckets that will not run in this step.
void Step::skip_what_never_started() {
  if (!opened_) return;
  for (auto& bucket : compiled_->phase(context_.step.phase))
    if (!bucket->started) skip_all(*bucket);
}

// Launches legs that wait for a forward that never comes, and passes the turns of messages that are
// never sent: every job ends, unless another rank or a plugin call blocks it.
void Step::let_go() {
  const Lock lock(mutex_);
  forward_legs_.launch_all();
  skip_what_never_started();
}

void Step::drop() {
  const Lock lock(mutex_);
  if (!opened_) return;
  skip_what_never_started();
  compiled_->pass_turns(context_.step.phase);
  opened_ = closed_ = false;
}

StepTimes Step::finish(bool counts) {
  const Lock lock(mutex_);
  penstock_step& step = context_.step;
  StepTimes times = ready_times(*compiled_, step.phase, gradients_);
  // On a device the first gradient is complete long after it was handed in.
  if (!context_.has_devices) times.first_ready_us = std::min(times.first_ready_us, first_ready_us_);
  times.last_ready_us = std::max(times.last_ready_us, first_ready_us_);
  times.waited_us = double(waited_us_ - std::exchange(waited_before_us_, waited_us_));
  activity_->at(Activity::Phase::ended, step.index);
  compiled_->pass_turns(step.phase);
  ++context_.attempt;
  if (counts) ++step.index;
  opened_ = closed_ = false;  // together with the count: the next step has not begun
  return times;
}

uint64_t Step::waited_us() const {
  const Lock lock(mutex_);
  return waited_us_;
}

}  // namespace penstock

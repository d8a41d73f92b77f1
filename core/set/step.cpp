#include "core/set/step.hpp"

#include "core/bucket/calls.hpp"
#include "core/bucket/engine.hpp"
#include "core/tensor/check.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace penstock {

void Step::arm(Works& works) {
  const Lock lock(mutex_);
  works_ = &works;
  penstock_step& step = context_.step;
  step.phase = static_cast<uint32_t>(step.index % works.period());
  activity_->done(context_.attempt);
  Works::Phase& phase = works.phase(step.phase);
  buckets_left_ = static_cast<uint32_t>(phase.size());
  backward_parts_left_ = gradients_left_ = 0;
  closed_ = opened_ = false;
  held_.clear();
  forward_legs_.arm(works.forward_legs(step.phase));
  for (auto& gradient : gradients_) {
    gradient->progress = Gradient::Progress::open;
    gradient->pieces_left = 0;
    gradient->waited_for = false;
    if (!works.of(step.phase, gradient->index).empty()) ++gradients_left_;
  }
  for (auto& bucket : phase) {
    bucket->gradients_missing.store(bucket->n_gradients);
    bucket->launched.store(false);
    bucket->waits_for_launch.store(false);
    bucket->ran = bucket->started = false;
    if (bucket->defers()) ++backward_parts_left_;
    for (const PieceRun& piece : bucket->pieces) ++piece.gradient->pieces_left;
  }
}

Status Step::usable() {
  if (torn_.ok()) return {};
  if (!std::exchange(told_, true)) return torn_;
  return failed_precondition(
      "set '{}' is torn: an earlier step failed ({}); start again, then load a saved state",
      context_.name, torn_.message());
}

// ---- gradients ----

Status Step::check(const Gradient& gradient, const penstock_tensor& tensor) const {
  const Status fault = storage_fault(tensor, gradient.lies_on);
  if (!fault.ok())
    return Status(fault.code(), fmt::format("gradient '{}' {}", gradient.name, fault.message()));
  if (tensor.dtype != gradient.dtype)
    return invalid_argument("gradient '{}' is {}, but was declared as {}", gradient.name,
                            dtype_name(tensor.dtype), dtype_name(gradient.dtype));
  if (tensor.numel != gradient.numel)
    return invalid_argument("gradient '{}' has {} elements, but was declared with {}",
                            gradient.name, tensor.numel, gradient.numel);
  return {};
}

void Step::make_ready(Gradient& gradient, void* data) {
  gradient.progress = Gradient::Progress::ready;
  gradient.data = data;
  gradient.ready_us = now_us();
  gradient.place = gradients_.size() - gradients_left_;
  if (!opened_) {
    opened_ = true;
    first_ready_us_ = gradient.ready_us;
    activity_->at(Activity::Phase::computes, context_.step.index);
    if (services_.control.somebody_joined()) tell_begun();
  }
  const uint32_t phase = context_.step.phase;
  for (BucketRun* bucket : works_->of(phase, gradient.index))
    if (bucket->gradients_missing.fetch_sub(1) == 1 && bucket->plan.launch == PENSTOCK_LAUNCH_READY)
      start(*bucket);
  if (--gradients_left_ == 0) all_are_ready();
}

void Step::all_are_ready() {
  for (auto& bucket : works_->phase(context_.step.phase))
    if (bucket->plan.launch != PENSTOCK_LAUNCH_READY) start(*bucket);
  if (results_.are_told()) stand_in_.wake(context_.attempt);
}

void Step::start(BucketRun& bucket) {
  if (gate_ != Gate::open) return held_.push_back(&bucket);
  bucket.started = true;
  ++running_;
  context_.engine->start(bucket);
}

Status Step::ready(uint64_t index, const penstock_tensor& tensor, void* stream) {
  return hand_in(index, tensor, stream, false);
}

Status Step::absent(uint64_t index, const penstock_tensor& tensor) {
  if (index < gradients_.size() && tensor.data != nullptr &&
      tensor.device_type == PENSTOCK_DEVICE_CPU && check(*gradients_[index], tensor).ok())
    std::memset(tensor.data, 0, tensor.numel * dtype_bytes(tensor.dtype));
  return hand_in(index, tensor, nullptr, true);
}

Status Step::hand_in(uint64_t index, const penstock_tensor& tensor, void* stream, bool is_zero) {
  Lock lock(mutex_);
  PENSTOCK_TRY(usable());
  if (index >= gradients_.size())
    return invalid_argument("set '{}' has {} gradients, there is no gradient {}", context_.name,
                            gradients_.size(), index);
  Gradient& gradient = *gradients_[index];
  PENSTOCK_TRY(check(gradient, tensor));
  if (closed_)
    return failed_precondition(
        "gradient '{}' became ready in step {} after a wait had closed it: end the step first",
        gradient.name, context_.step.index);
  if (gradient.progress != Gradient::Progress::open)
    return failed_precondition(
        "gradient '{}' became ready twice in step {}: one backward pass per step, or accumulate "
        "before",
        gradient.name, context_.step.index);
  const bool is_there = works_->of(context_.step.phase, index).empty();
  void* data = tensor.data;
  if (DeviceSide* side = gradient.device_side; side != nullptr && !is_there) {
    const Status queued = is_zero ? side->take_zeros(tensor.data) : side->take(tensor.data, stream);
    if (!queued.ok()) {
      lock.unlock();
      return give_up(gradient, queued);
    }
    data = side->work_place();
  }
  make_ready(gradient, data);
  const std::function<void()> ask = question();
  lock.unlock();
  if (ask) ask();
  if (is_there) results_.tell(index);
  return {};
}

Status Step::set_learning_rate(uint64_t index, double learning_rate) {
  const Lock lock(mutex_);
  if (index >= gradients_.size())
    return invalid_argument("set '{}' has no gradient {}", context_.name, index);
  gradients_[index]->learning_rate = learning_rate;
  return {};
}

Status Step::set_learning_rates(std::span<const double> learning_rates) {
  const Lock lock(mutex_);
  if (learning_rates.size() != gradients_.size())
    return invalid_argument("set '{}' has {} gradients and was given {} learning rates",
                            context_.name, gradients_.size(), learning_rates.size());
  for (size_t i = 0; i < learning_rates.size(); ++i)
    if (!std::isnan(learning_rates[i])) gradients_[i]->learning_rate = learning_rates[i];
  return {};
}

Status Step::set_grad_scale(double grad_scale) {
  const Lock lock(mutex_);
  if (!(grad_scale > 0))
    return invalid_argument("grad_scale is {}, expected a number above 0", grad_scale);
  if (opened_)
    return failed_precondition("grad_scale of set '{}' is set in the middle of step {}",
                               context_.name, context_.step.index);
  context_.step.grad_scale = grad_scale;
  return {};
}

// ---- the gate ----

void Step::hold(std::function<void()> ask) {
  const Lock lock(mutex_);
  gate_ = Gate::shut;
  ask_ = std::move(ask);
}

// Where the run was given up the answer comes on this thread, so not with the lock held.
std::function<void()> Step::question() {
  if (gate_ != Gate::shut) return nullptr;
  gate_ = Gate::asked;
  return ask_;
}

void Step::release() {
  const Lock lock(mutex_);
  gate_ = Gate::open;
  for (BucketRun* bucket : held_) start(*bucket);
  held_.clear();
}

// ---- the engine's reports ----

void Step::backward_part_ended(BucketRun&) {
  const Lock lock(mutex_);
  if (--backward_parts_left_ == 0) changed_.notify_all();
}

void Step::bucket_ended(BucketRun& bucket, const Status& status) {
  Status failure = status;
  if (!failure.ok()) {
    failure = failure.with_context(
        fmt::format("set '{}', step {}, {}", context_.name, context_.step.index, bucket.label));
    // Others wait for this rank's next message, which will not come.
    services_.run.give_up(failure);
  }
  Lock lock(mutex_);
  if (torn_.ok()) torn_ = failure;
  forward_legs_.arrived(bucket);
  // Who waits is woken by what it waits for, not by every bucket.
  bool awaited = !failure.ok();
  results_.ended().clear();
  for (const PieceRun& piece : bucket.pieces) {
    Gradient& gradient = *piece.gradient;
    if (--gradient.pieces_left != 0) continue;
    gradient.progress = Gradient::Progress::done;
    awaited |= gradient.waiters != 0;
    if (results_.are_told()) results_.ended().push_back(gradient.index);
  }
  if (torn_.ok() && !results_.ended().empty()) {
    lock.unlock();
    results_.tell(results_.ended());
    lock.lock();
  }
  if (--buckets_left_ == 0 && torn_.ok()) activity_->done(context_.attempt + 1);
  --running_;
  if (awaited || buckets_left_ == 0 || running_ == 0) changed_.notify_all();
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
        !works_->of(context_.step.phase, gradient->index).empty())
      lost.push_back(gradient->index);
  lock.unlock();
  results_.tell(lost, reason);
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

// On ORDERED channels the others wait for the turns of buckets that will not run in this step.
void Step::skip_what_never_started() {
  if (!opened_) return;
  for (auto& bucket : works_->phase(context_.step.phase))
    if (!bucket->started) skip_all(*bucket);
}

// Legs that wait for a forward that never comes go, and so does what waits for its turn after
// messages that never go out: every job ends, unless another rank or a plugin call keeps it.
void Step::let_go() {
  const Lock lock(mutex_);
  forward_legs_.launch_all();
  skip_what_never_started();
}

void Step::drop() {
  const Lock lock(mutex_);
  if (!opened_) return;
  skip_what_never_started();
  works_->pass_turns(context_.step.phase);
  opened_ = closed_ = false;
}

Step::Times Step::finish(bool counts) {
  const Lock lock(mutex_);
  penstock_step& step = context_.step;
  Times times{first_ready_us_, first_ready_us_, double(waited_us_ - waited_before_us_)};
  // On a device the first one comes long after it was handed in.
  if (context_.has_devices) times.first_ready_us = UINT64_MAX;
  for (auto& gradient : gradients_) {
    if (works_->of(step.phase, gradient->index).empty()) continue;
    times.first_ready_us = std::min(times.first_ready_us, gradient->ready_us);
    times.last_ready_us = std::max(times.last_ready_us, gradient->ready_us);
  }
  waited_before_us_ = waited_us_;
  activity_->at(Activity::Phase::ended, step.index);
  works_->pass_turns(step.phase);
  ++context_.attempt;
  if (counts) ++step.index;
  return times;
}

uint64_t Step::waited_us() const {
  const Lock lock(mutex_);
  return waited_us_;
}

}  // namespace penstock

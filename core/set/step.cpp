// Steps of a set: gradients become ready, buckets run, the application waits.

#include "core/set/set.hpp"

#include "core/bucket/calls.hpp"
#include "core/bucket/engine.hpp"
#include "core/tensor/check.hpp"

#include <algorithm>

namespace penstock {

Set::Set(const Services& services) : services_(services), guard_(std::make_shared<Guard>()) {
  guard_->set = this;
}

// The cause once, as it is; then that there was one.
Status Set::usable() {
  if (torn_.ok()) return {};
  if (!std::exchange(told_, true)) return torn_;
  return failed_precondition(
      "set '{}' is torn: an earlier step failed ({}); start again, then load a saved state", name,
      torn_.message());
}

// ---- gradients ----

Status Set::check_ready(const Gradient& gradient, const penstock_tensor& tensor) const {
  const Status fault = storage_fault(tensor);
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

// Called with the lock held.
void Set::make_ready(Gradient& gradient, void* data) {
  gradient.stage = Gradient::Stage::ready;
  gradient.data = data;
  gradient.ready_us = now_us();
  if (!opened_) {
    opened_ = true;
    first_ready_us_ = gradient.ready_us;
    activity_->at(Activity::Phase::computes, step.index);
  }
  const bool complete = --gradients_left_ == 0;
  auto& phase = works_->phase(step.phase);
  for (BucketRun* bucket : works_->of(step.phase, gradient.index)) {
    if (bucket->gradients_missing.fetch_sub(1) != 1 || bucket->plan.launch != PENSTOCK_LAUNCH_READY)
      continue;
    start(*bucket);
  }
  if (complete) {
    for (auto& bucket : phase) {
      if (bucket->plan.launch == PENSTOCK_LAUNCH_READY) continue;
      start(*bucket);
    }
  }
}

// Called with the lock held.
void Set::start(BucketRun& bucket) {
  if (agreement_ != Agreement::reached) return held_.push_back(&bucket);
  bucket.started = true;
  ++running_;
  engine->start(bucket);
}

Status Set::gradient_ready(uint64_t index, const penstock_tensor& tensor) {
  std::unique_lock lock(mutex_);
  PENSTOCK_TRY(usable());
  if (index >= gradients_.size())
    return invalid_argument("set '{}' has {} gradients, there is no gradient {}", name,
                            gradients_.size(), index);
  Gradient& gradient = *gradients_[index];
  PENSTOCK_TRY(check_ready(gradient, tensor));
  if (closed_)
    return failed_precondition(
        "gradient '{}' became ready in step {} after a wait had closed it: end the step first",
        gradient.name, step.index);
  if (gradient.stage != Gradient::Stage::open)
    return failed_precondition(
        "gradient '{}' became ready twice in step {}: one backward pass per step, or accumulate "
        "before",
        gradient.name, step.index);
  make_ready(gradient, tensor.data);
  const bool asks = must_ask();
  lock.unlock();
  if (asks) ask_for_states();
  return {};
}

Status Set::gradient_absent(uint64_t index, const penstock_tensor& tensor) {
  if (index < gradients_.size() && tensor.data != nullptr &&
      check_ready(*gradients_[index], tensor).ok())
    std::memset(tensor.data, 0, tensor.numel * dtype_bytes(tensor.dtype));
  return gradient_ready(index, tensor);
}

Status Set::learning_rate(uint64_t index, double learning_rate) {
  std::lock_guard lock(mutex_);
  if (index >= gradients_.size())
    return invalid_argument("set '{}' has no gradient {}", name, index);
  gradients_[index]->learning_rate = learning_rate;
  return {};
}

Status Set::grad_scale(double grad_scale) {
  std::lock_guard lock(mutex_);
  if (!(grad_scale > 0))
    return invalid_argument("grad_scale is {}, expected a number above 0", grad_scale);
  if (opened_)
    return failed_precondition("grad_scale of set '{}' is set in the middle of step {}", name,
                               step.index);
  step.grad_scale = grad_scale;
  return {};
}

// The first wait of a step closes it: what is missing counts as zero.
Status Set::close() {
  std::unique_lock lock(mutex_);
  PENSTOCK_TRY(usable());
  if (!closed_ && opened_ && timeline->enabled())
    timeline->add({"backward", "application", first_ready_us_, now_us(), step.index, {}, 0, 0});
  closed_ = true;
  for (auto& gradient : gradients_) {
    if (gradient->stage != Gradient::Stage::open || works_->of(step.phase, gradient->index).empty())
      continue;
    const uint64_t bytes = gradient->numel * dtype_bytes(gradient->dtype);
    if (gradient->unclaimed.bytes() != bytes) gradient->unclaimed = Buffer(bytes);
    if (bytes != 0) std::memset(gradient->unclaimed.data(), 0, bytes);
    make_ready(*gradient, gradient->unclaimed.data());
  }
  const bool asks = must_ask();
  lock.unlock();
  if (asks) ask_for_states();
  return {};
}

void Set::launch_deferred() {
  if (works_ == nullptr || !works_->defers()) return;
  auto& phase = works_->phase(step.phase);
  // The forward needs the layers that backward reached last.
  for (auto bucket = phase.rbegin(); bucket != phase.rend(); ++bucket)
    if ((*bucket)->defers()) (*bucket)->launch();
}

// On ORDERED channels the others wait for the turns of buckets that will not run in this step.
// Called with the lock held.
void Set::skip_what_never_started() {
  if (!opened_) return;
  for (auto& bucket : works_->phase(step.phase))
    if (!bucket->started) skip_all(*bucket);
}

void Set::drop_step() {
  std::lock_guard lock(mutex_);
  if (!opened_) return;
  skip_what_never_started();
  sequence_base += works_->messages_in(step.phase);
  opened_ = closed_ = false;
}

// ---- the engine's reports ----

void Set::backward_part_ended(BucketRun&) {
  std::lock_guard lock(mutex_);
  if (--first_legs_left_ == 0) changed_.notify_all();
}

void Set::bucket_ended(BucketRun& bucket, const Status& status) {
  if (!status.ok()) {
    // Others wait for this rank's next message, which will not come.
    services_.run.give_up(
        status.with_context(fmt::format("set '{}', step {}, {}", name, step.index, bucket.label)));
  }
  std::lock_guard lock(mutex_);
  if (!status.ok() && torn_.ok())
    torn_ =
        status.with_context(fmt::format("set '{}', step {}, {}", name, step.index, bucket.label));
  // Who waits is woken by what it waits for, not by every bucket.
  bool awaited = !status.ok();
  for (ItemRun& item : bucket.items) {
    if (--item.gradient->pieces_left != 0) continue;
    item.gradient->stage = Gradient::Stage::done;
    awaited |= item.gradient->waiters != 0;
  }
  if (--buckets_left_ == 0 && torn_.ok()) activity_->done(step.index + 1);
  --running_;
  if (awaited || buckets_left_ == 0 || running_ == 0) changed_.notify_all();
}

void Set::fail(const Status& reason) {
  std::lock_guard lock(mutex_);
  if (torn_.ok())
    torn_ = loaded_ && agreement_ == Agreement::asked ? alone_after_load(reason) : reason;
  changed_.notify_all();
}

// ---- the end of a step ----

Status Set::step_end(bool applied) {
  PENSTOCK_TRY(wait_all());
  const uint64_t ending = step.index;
  Status refused_change;
  Status status = finish_step(applied, refused_change);
  const std::string where = fmt::format("set '{}', end of step {}", name, ending);
  if (status.ok()) return refused_change.with_context(where);
  // Half changed, perhaps on this rank alone: no step can follow, and the others must not wait for
  // one.
  status = status.with_context(where);
  services_.run.give_up(status);
  std::lock_guard lock(mutex_);
  told_ = true;
  return status;
}

// `refused_change`: why all ranks stay with the plan that they have.
Status Set::finish_step(bool applied, Status& refused_change) {
  if (!applied) {
    PENSTOCK_TRY(engine->run([&] {
      for (auto& bucket : works_->phase(step.phase)) PENSTOCK_TRY(give_back_own(*bucket));
      return Status();
    }));
  }
  settle_carries(applied);
  if (nonfinite_gradient.exchange(kNoGradient) != kNoGradient) ++nonfinite_steps_;
  const uint64_t ended = now_us();
  uint64_t last_ready = first_ready_us_;
  {
    std::lock_guard lock(mutex_);
    for (auto& gradient : gradients_) {
      if (works_->of(step.phase, gradient->index).empty()) continue;
      totals_.gradient_bytes += gradient->numel * dtype_bytes(gradient->dtype);
      last_ready = std::max(last_ready, gradient->ready_us);
      measured_.add_ready(gradient->index, double(gradient->ready_us - first_ready_us_));
    }
    dense_moved_ += dense_moved_per_step_;
    ++totals_.steps;
    activity_->at(Activity::Phase::ended, step.index);
    for (size_t b = 0; b < works_->phase(step.phase).size(); ++b)
      measured_.add_bucket(b, *works_->phase(step.phase)[b]);
    measured_.add_step(double(ended - first_ready_us_), double(last_ready - first_ready_us_),
                       double(totals_.wait_us - waited_until_step_us_));
    waited_until_step_us_ = totals_.wait_us;
    sequence_base += works_->messages_in(step.phase);
    ++step.index;
    if (started_us_ == 0) started_us_ = first_ready_us_;
    ended_us_ = ended;
    if (totals_.steps == 2) allocations_at_steady_ = engine->allocations();
  }
  if (totals_.steps == kStepsOfTrial) warn_of_what_was_moved();
  refused_together_ = false;
  refused_change = change();
  if (!refused_change.ok() && !refused_together_) return refused_change;
  PENSTOCK_TRY(compare_replicated());
  arm();
  return {};
}

// Makes the set ready for the gradients of the next step.
void Set::arm() {
  std::lock_guard lock(mutex_);
  step.phase = static_cast<uint32_t>(step.index % works_->period());
  activity_->done(step.index);
  auto& phase = works_->phase(step.phase);
  buckets_left_ = static_cast<uint32_t>(phase.size());
  first_legs_left_ = 0;
  gradients_left_ = 0;
  closed_ = opened_ = false;
  held_.clear();
  for (auto& gradient : gradients_) {
    gradient->stage = Gradient::Stage::open;
    gradient->pieces_left = 0;
    if (!works_->of(step.phase, gradient->index).empty()) ++gradients_left_;
  }
  for (auto& bucket : phase) {
    bucket->gradients_missing.store(bucket->n_gradients);
    bucket->launched.store(false);
    bucket->waits_for_launch.store(false);
    bucket->ran = bucket->started = false;
    if (bucket->defers()) ++first_legs_left_;
    for (ItemRun& item : bucket->items) ++item.gradient->pieces_left;
  }
}

}  // namespace penstock

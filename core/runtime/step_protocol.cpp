#include "core/runtime/step_protocol.hpp"

#include <algorithm>
#include <utility>

namespace penstock {

StepProtocol::StepProtocol(Set& set, std::vector<std::string> names)
    : set_(set), names_(std::move(names)), gradients_(names_.size()) {}

std::string StepProtocol::name_of(uint64_t index) const {
  return index < names_.size() ? fmt::format("gradient '{}'", names_[index])
                               : fmt::format("gradient {}, beside the set", index);
}

// ---- backward ----

Status StepProtocol::set_passes(uint32_t passes, uint64_t n_beside) {
  if (passes == 0) return invalid_argument("backward_passes_per_step is 0, expected at least 1");
  const Lock lock(mutex_);
  gradients_.resize(names_.size() + n_beside);
  for (Progress& one : gradients_) one.passes = one.passes == passes_ ? passes : 0;
  passes_ = passes;
  return {};
}

Status StepProtocol::came(uint64_t index, const penstock_tensor* tensor, void* stream,
                          uint32_t& todo) {
  PENSTOCK_TRY(count(index, todo));
  if (tensor == nullptr || todo != PENSTOCK_GRADIENT_HAND_IN) return {};
  todo = PENSTOCK_GRADIENT_IS_IN;
  return set_.gradient_ready(index, *tensor, stream);
}

Status StepProtocol::count(uint64_t index, uint32_t& todo) {
  todo = PENSTOCK_GRADIENT_REFUSED;
  const Lock lock(mutex_);
  if (index >= gradients_.size())
    return invalid_argument("set '{}' has {} gradients, there is no gradient {}", set_.name,
                            gradients_.size(), index);
  uint32_t& passes = gradients_[index].passes;
  if (passes == passes_)
    return failed_precondition(
        "Gradients were computed more than backward_passes_per_step times before call to step(): "
        "{} more than {} times. Increase backward_passes_per_step to accumulate gradients locally, "
        "or call step() or synchronize() after each pass.",
        name_of(index), passes_);
  has_come_ = true;
  if (++passes < passes_) {
    todo = PENSTOCK_GRADIENT_ADDS_UP;
  } else if (holds_) {
    held_.push_back(index);
    todo = PENSTOCK_GRADIENT_HELD;
  } else {
    todo = phase_ == PENSTOCK_PHASE_OPEN ? PENSTOCK_GRADIENT_HAND_IN : PENSTOCK_GRADIENT_BEGIN;
  }
  return {};
}

Status StepProtocol::begin() {
  const Lock lock(mutex_);
  if (phase_ == PENSTOCK_PHASE_SYNCHRONIZED || phase_ == PENSTOCK_PHASE_DEFERRED)
    return failed_precondition(
        "a step of set '{}' begins before the previous step has ended: wait for the results of "
        "that step and call penstock_step_end first",
        set_.name);
  phase_ = PENSTOCK_PHASE_OPEN;
  return {};
}

std::vector<uint64_t> StepProtocol::rest() {
  const Lock lock(mutex_);
  holds_ = false;
  std::vector<uint64_t> all = std::exchange(held_, {});
  for (uint64_t i = 0; i < gradients_.size(); ++i)
    if (std::exchange(gradients_[i].passes, passes_) != passes_) all.push_back(i);
  return all;
}

uint32_t StepProtocol::phase() {
  const Lock lock(mutex_);
  return phase_ == PENSTOCK_PHASE_IDLE && !held_.empty() ? uint32_t{PENSTOCK_PHASE_HELD} : phase_;
}

bool StepProtocol::has_come() {
  const Lock lock(mutex_);
  return has_come_;
}

void StepProtocol::restart() {
  const Lock lock(mutex_);
  if (phase_ != PENSTOCK_PHASE_SYNCHRONIZED) phase_ = PENSTOCK_PHASE_IDLE;
  rewind();
  for (Progress& one : gradients_) one.was_waited_for = false;
  n_waited_for_ = 0;
}

void StepProtocol::rewind() {
  has_come_ = false;
  held_.clear();
  for (Progress& one : gradients_) one.passes = 0;
}

// ---- results ----

Status StepProtocol::wait(uint64_t index) {
  PENSTOCK_TRY(set_.wait(index));
  return waited_for(index);
}

Status StepProtocol::wait_stream(uint64_t index, void* stream) {
  PENSTOCK_TRY(set_.wait_stream(index, stream));
  return waited_for(index);
}

Status StepProtocol::wait_all() {
  PENSTOCK_TRY(set_.wait_all());
  return all_were_waited_for();
}

Status StepProtocol::waited_for(uint64_t index) {
  {
    const Lock lock(mutex_);
    if (phase_ != PENSTOCK_PHASE_OPEN && phase_ != PENSTOCK_PHASE_DEFERRED) return {};
    if (std::exchange(gradients_[index].was_waited_for, true)) return {};
    if (++n_waited_for_ < names_.size()) return {};
  }
  return all_were_waited_for();
}

// The results of a deferred step are always applied, so the last wait ends the step as applied.
Status StepProtocol::all_were_waited_for() {
  {
    const Lock lock(mutex_);
    for (Progress& one : gradients_) one.was_waited_for = false;
    n_waited_for_ = 0;
    if (phase_ == PENSTOCK_PHASE_OPEN) {
      phase_ = PENSTOCK_PHASE_SYNCHRONIZED;
      rewind();
      return {};
    }
    if (phase_ != PENSTOCK_PHASE_DEFERRED) return {};
  }
  return end(PENSTOCK_STEP_APPLIED);
}

Status StepProtocol::backward_end() {
  PENSTOCK_TRY(set_.backward_end());
  const Lock lock(mutex_);
  if (phase_ != PENSTOCK_PHASE_OPEN) return {};
  phase_ = PENSTOCK_PHASE_DEFERRED;
  rewind();
  return {};
}

// A refused end leaves the step open. If only the new plan fails, the step has ended anyway.
Status StepProtocol::end(uint32_t outcome) {
  const Status status = set_.step_end(outcome);
  if (status.ok() || !set_.under_way()) {
    const Lock lock(mutex_);
    phase_ = PENSTOCK_PHASE_IDLE;
  }
  return status;
}

// After success the set has another state or none, and no step is open.
Status StepProtocol::or_stay(Status replaced) {
  PENSTOCK_TRY(std::move(replaced));
  restart();
  const Lock lock(mutex_);
  phase_ = PENSTOCK_PHASE_IDLE;
  return {};
}

}  // namespace penstock

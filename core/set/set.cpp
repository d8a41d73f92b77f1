// What the application calls between gradients and waits, and the end of a set.

#include "core/set/set.hpp"

#include "core/base/hash.hpp"
#include "core/base/out_of_memory.hpp"
#include "core/bucket/calls.hpp"
#include "core/bucket/engine.hpp"
#include "core/set/parameters.hpp"

namespace penstock {

Set::Set(const Services& services)
    : services_(services),
      carries_(*this, gradients_),
      step_(*this, gradients_, group_, services_),
      agreement_(services_, name, group_, step_),
      channels_(*this, services_),
      traffic_(*this, channels_.opened(), services_.log),
      measurements_(*this, services_, group_, gradients_, channels_, traffic_),
      forgotten_watch_(*this, services_) {
  listener = &step_;
}

Set::~Set() {
  services_.run.forget(*this);
}

void SetCloser::operator()(Set* set) const {
  if (set->end()) delete set;
}

void Set::fail(const Status& reason) {
  step_.tear(agreement_.explain(reason));
}

Status Set::wait(uint64_t index) {
  const Status status = step_.wait(index);
  warn_of_nonfinite();
  return status;
}

Status Set::wait_stream(uint64_t index, void* stream) {
  const Status status = step_.wait_stream(index, stream);
  warn_of_nonfinite();
  return status;
}

Status Set::wait_all() {
  const Status status = step_.wait_all();
  warn_of_nonfinite();
  return status;
}

Status Set::backward_end() {
  const Status status = step_.wait_backward();
  warn_of_nonfinite();
  return status;
}

Status Set::flush() {
  PENSTOCK_TRY(step_.failure());
  return step_.under_way() ? wait_all() : Status();
}

Status Set::compare_parameters(std::span<const penstock_str> names,
                               std::span<const uint64_t> checksums, std::string_view advice) {
  if (step_.under_way())
    return failed_precondition(
        "set '{}': parameters are compared between two steps, and step {} is under way", name,
        step.index);
  return Parameters(*this, services_, group_).compare(names, checksums, advice);
}

// ---- ranks that have joined ----

void Set::tell_where() {
  step_.tell_where();
}

Status Set::begin_with_zeros(uint64_t number, std::string_view facts) {
  PENSTOCK_TRY(catch_up(number));
  if (attempt != number || step_.under_way()) return {};
  return step_.begin_with_zeros(facts);
}

Status Set::end_with_others(uint64_t number, std::string_view forgotten) {
  PENSTOCK_TRY(catch_up(number));
  if (attempt != number) return {};
  if (forgotten.size() != gradients_.size())
    return invalid_payload("set '{}': the end of a step was told for {} gradients, expected {}",
                           name, forgotten.size(), gradients_.size());
  std::copy(forgotten.begin(), forgotten.end(), forgotten_.begin());
  return end_step(forgotten_);
}

// Steps that the others ended before they knew that somebody has joined had no message of theirs to
// wait for.
Status Set::catch_up(uint64_t number) {
  while (attempt < number) PENSTOCK_TRY(step_end());
  return {};
}

// ---- the end of a set that may be in the middle of a step ----

bool Set::end() {
  agreement_.end();
  say_end();
  if (record_ != nullptr && totals_.steps != 0) say_profile();
  step_.let_go();
  if (services_.state().ok() && !step_.wait_until_idle(services_.limits.deadline_us))
    services_.run.give_up(
        aborted("set '{}' was destroyed in the middle of step {}, which other ranks "
                "have not come to within {} s",
                name, step.index, double(services_.limits.deadline_us) * 1e-6));
  if (!step_.wait_until_idle(services_.limits.end_us) || !services_.run.answers()) {
    services_.run.abandon(fmt::format("set '{}'", name));
    return false;
  }
  end_on_devices();
  channels_.close();
  step_.stop();
  return true;
}

}  // namespace penstock

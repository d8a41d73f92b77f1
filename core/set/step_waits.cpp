#include "core/set/step_waits.hpp"

#include <chrono>

namespace penstock {
namespace {

// The time between two polls of a copy back. It is short because nothing else is left to wait for.
constexpr std::chrono::microseconds kBetweenLooks{50};

}  // namespace

// Polls instead of waiting on the device, so that the end of a run ends this wait too.
Status StepWaits::until_returned(Gradient& gradient) {
  if (gradient.on_device.side == nullptr) return {};
  const uint64_t start = now_us();
  for (;;) {
    bool returned = false;
    const Status looked = gradient.on_device.side->has_returned(returned);
    if (!looked.ok()) return step_.give_up(gradient, looked);
    if (returned || step_.rest(kBetweenLooks)) return step_.returned(gradient, start);
  }
}

Status StepWaits::one(uint64_t index) {
  PENSTOCK_TRY(step_.wait_until_ended(index));
  return until_returned(*gradients_[index]);
}

Status StepWaits::all() {
  PENSTOCK_TRY(step_.wait_until_all_ended());
  if (set_.has_devices)
    for (const auto& gradient : gradients_) PENSTOCK_TRY(until_returned(*gradient));
  return {};
}

Status StepWaits::rest() {
  PENSTOCK_TRY(step_.wait_until_all_ended());
  if (set_.has_devices)
    for (const auto& gradient : gradients_)
      if (!gradient->waited_for) PENSTOCK_TRY(until_returned(*gradient));
  return {};
}

Status StepWaits::on_stream(uint64_t index, void* stream) {
  PENSTOCK_TRY(step_.wait_until_ended(index));
  Gradient& gradient = *gradients_[index];
  if (gradient.on_device.side == nullptr) return {};
  const Status queued = gradient.on_device.side->hold_back_until_returned(stream);
  if (!queued.ok()) return step_.give_up(gradient, queued);
  gradient.waited_for = true;
  return {};
}

Status StepWaits::poll(uint64_t index, bool& done) {
  PENSTOCK_TRY(step_.poll(index, done));
  if (!done || gradients_[index]->on_device.side == nullptr) return {};
  bool returned = true;  // also if the device fails, because a wait reports that
  (void)gradients_[index]->on_device.side->has_returned(returned);
  done = returned || step_.rest(std::chrono::microseconds(0));
  return {};
}

}  // namespace penstock

// The side of a gradient on a device that the application meets: the gradient is taken when it is
// ready and returned to its storage at the end. In between it is staged through host memory
// (staging.hpp) or stays device-resident (resident.hpp).
#pragma once

#include "core/device/device.hpp"

namespace penstock {

class DeviceSide {
 public:
  explicit DeviceSide(Event returned) : returned_(std::move(returned)) {}
  DeviceSide(const DeviceSide&) = delete;
  DeviceSide& operator=(const DeviceSide&) = delete;
  virtual ~DeviceSide() = default;

  // ---- [application], one call at a time for all gradients of a set ----
  // Takes the gradient in `storage`, which is ready when the work queued on `stream` has run.
  virtual Status take(void* storage, void* stream) = 0;
  // Takes zeros as the gradient of this step. The result goes to `storage` after the work queued on
  // the legacy default stream; null: there is no storage for it.
  virtual Status take_zeros(void* storage) = 0;
  // The memory in which the gradient is processed: numel elements. Valid after take or take_zeros.
  virtual void* work_place() const = 0;

  // ---- [any], after the last result of the step was queued ----
  Status has_returned(bool& returned) const { return returned_.query(returned); }
  Status hold_back_until_returned(void* stream) const { return returned_.hold_back(stream); }

 protected:
  Event returned_;
};

}  // namespace penstock

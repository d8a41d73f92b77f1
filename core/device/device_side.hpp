// What a set has of a gradient that lies on a device, as the application meets it: taken when it is
// ready, and back in its storage at the end. Between the two it goes through host memory
// (staging.hpp), or is worked on where it lies (resident.hpp).
#pragma once

#include "core/device/device.hpp"

namespace penstock {

class DeviceSide {
 public:
  explicit DeviceSide(Event returned) : returned_(std::move(returned)) {}
  DeviceSide(const DeviceSide&) = delete;
  DeviceSide& operator=(const DeviceSide&) = delete;
  virtual ~DeviceSide() = default;

  // ---- [application], one call at a time among all of a set ----
  // The gradient lies in `storage` when what is queued on `stream` has run.
  virtual Status take(void* storage, void* stream) = 0;
  // It is zero in this step. The result goes to `storage` after what is queued on the legacy
  // default stream; null: nowhere.
  virtual Status take_zeros(void* storage) = 0;
  // Where its values are while it is worked on: numel elements; after either of the two.
  virtual void* work_place() const = 0;

  // ---- [any], after the last result of the step was queued ----
  Status has_returned(bool& returned) const { return returned_.query(returned); }
  Status hold_back_until_returned(void* stream) const { return returned_.hold_back(stream); }

 protected:
  Event returned_;
};

}  // namespace penstock

// The devices of a run: the table is loaded when a set first requests a device.
#pragma once

#include "core/base/mutex.hpp"
#include "core/device/device.hpp"
#include "core/tensor/place.hpp"

namespace penstock {

class Devices {
 public:
  // `given`: a table to use instead of the file's table. Only tests pass one; no configuration can.
  explicit Devices(const penstock_device_table* given = nullptr) : given_(given) {}

  // Finds an existing device. NOT_FOUND: no table, no driver, no device, or no device with this
  // number; also the errors of load_device_table; DEVICE_ERROR: the device's runtime has failed.
  // [control]
  Result<Device> find(const Place& place);
  // The number of CUDA devices, at least one; otherwise an error as in find. [control]
  Result<int32_t> count();

 private:
  Result<const penstock_device_table*> table();

  const penstock_device_table* const given_;
  Mutex mutex_;
  const penstock_device_table* loaded_ PENSTOCK_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace penstock

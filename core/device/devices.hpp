// The devices of a run: the table is loaded when a set first asks for one.
#pragma once

#include "core/base/mutex.hpp"
#include "core/device/device.hpp"
#include "core/tensor/place.hpp"

namespace penstock {

class Devices {
 public:
  // `given`: a table to use instead of the file's; only tests have one, and no configuration names
  // one.
  explicit Devices(const penstock_device_table* given = nullptr) : given_(given) {}

  // A device that is there. NOT_FOUND: no table, no driver, no device, or none of this number; what
  // load_device_table says; DEVICE_ERROR: the device's runtime has failed. [control]
  Result<Device> find(const Place& place);
  // How many there are of CUDA, at least one; else why there is none, as find says it. [control]
  Result<int32_t> count();

 private:
  Result<const penstock_device_table*> table();

  const penstock_device_table* const given_;
  Mutex mutex_;
  const penstock_device_table* loaded_ PENSTOCK_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace penstock

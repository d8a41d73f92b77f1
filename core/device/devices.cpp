#include "core/device/devices.hpp"

#include "core/base/own_directory.hpp"
#include "core/device/table.hpp"

namespace penstock {

Result<Device> Devices::find(const Place& place) {
  if (place.device_type != PENSTOCK_DEVICE_CUDA)
    return unimplemented("{} is not known to this version; expected the CPU or CUDA", place.name());
  PENSTOCK_ASSIGN(const int32_t count, this->count());
  const int32_t id = place.device_id;
  if (id < 0 || id >= count)
    return not_found(
        "there is no cuda:{}, this process sees {} CUDA device{}, numbered from 0; "
        "CUDA_VISIBLE_DEVICES may hide some",
        id, count, count == 1 ? "" : "s");
  PENSTOCK_ASSIGN(const penstock_device_table* table, this->table());
  return Device(*table, id);
}

Result<int32_t> Devices::count() {
  PENSTOCK_ASSIGN(const penstock_device_table* table, this->table());
  int32_t count = 0;
  const char* why_none = nullptr;
  if (const int32_t error = table->device_count(&count, &why_none); error != 0)
    return device_error("CUDA cannot count its devices: {} (error {})", table->error_text(error),
                        error);
  if (count == 0)
    return not_found("no CUDA device can be used: {}",
                     why_none != nullptr ? why_none : "there is none");
  return count;
}

Result<const penstock_device_table*> Devices::table() {
  if (given_ != nullptr) {
    PENSTOCK_TRY(check_device_table(*given_, "the given table"));
    return given_;
  }
  const Lock lock(mutex_);
  if (loaded_ == nullptr) {
    PENSTOCK_ASSIGN(loaded_, load_device_table(own_directory() / "libpenstock_device_cuda.so"));
  }
  return loaded_;
}

}  // namespace penstock

#include "core/device/table.hpp"

#include <dlfcn.h>

namespace penstock {

Result<const penstock_device_table*> load_device_table(const std::filesystem::path& file) {
  std::error_code error;
  if (!std::filesystem::exists(file, error))
    return not_found(
        "there is no {}: this build knows the CPU only; build Penstock with -DPENSTOCK_CUDA=ON, or "
        "hand tensors in on the CPU",
        file.string());
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* reason = ::dlerror();
    return failed_precondition(
        "{} cannot be loaded ({}): install the file that was built with this libpenstock",
        file.string(), reason != nullptr ? reason : "the loader gives no reason");
  }
  const auto* table =
      static_cast<const penstock_device_table*>(::dlsym(library, "penstock_device"));
  if (table == nullptr)
    return failed_precondition(
        "{} exports no penstock_device: install the file that was built with this libpenstock",
        file.string());
  PENSTOCK_TRY(check_device_table(*table, file.string()));
  return table;
}

Status check_device_table(const penstock_device_table& table, std::string_view origin) {
  if (table.struct_size < sizeof table)
    return failed_precondition(
        "{} has a device table of {} bytes, expected at least {}: install the file that was built "
        "with this libpenstock",
        origin, table.struct_size, sizeof table);
  if (table.device_type != PENSTOCK_DEVICE_CUDA)
    return failed_precondition("{} has a device table for device type {}, expected {} (CUDA)",
                               origin, table.device_type, int32_t{PENSTOCK_DEVICE_CUDA});
  return {};
}

}  // namespace penstock

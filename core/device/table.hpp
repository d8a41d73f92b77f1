// Finds the device table: libpenstock_device_cuda.so may lie beside this library. A loaded table is
// never unloaded, because objects that were leaked on purpose on a lost device may still call it.
#pragma once

#include "core/base/status.hpp"
#include "core/device/device_table.h"

#include <filesystem>

namespace penstock {

// Loads the table that a file exports. NOT_FOUND: no such file. FAILED_PRECONDITION: it cannot be
// loaded, or check_device_table refuses it. [control]
Result<const penstock_device_table*> load_device_table(const std::filesystem::path& file);

// Whether this core can use a table: it has all functions that the core knows and is for CUDA.
// `origin`: the file, for messages.
Status check_device_table(const penstock_device_table& table, std::string_view origin);

}  // namespace penstock

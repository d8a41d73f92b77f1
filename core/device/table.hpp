// Finding the device table: libpenstock_device_cuda.so lies beside this library, or is not there.
// Once loaded it stays, for what is left behind on a lost device may still call it.
#pragma once

#include "core/base/status.hpp"
#include "core/device/device_table.h"

#include <filesystem>

namespace penstock {

// The table that a file exports. NOT_FOUND: no such file. FAILED_PRECONDITION: it cannot be loaded,
// or check_device_table refuses it. [control]
Result<const penstock_device_table*> load_device_table(const std::filesystem::path& file);

// Whether this core can use a table: all that it knows of is there, and it is of CUDA. `origin`:
// the file, for messages.
Status check_device_table(const penstock_device_table& table, std::string_view origin);

}  // namespace penstock

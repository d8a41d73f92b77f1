#pragma once

#include "core/base/kind.hpp"
#include "core/base/status.hpp"

#include <penstock/plugin.h>

namespace penstock {

// Checks a module: sizes, option declarations, mandatory members of the table.
Status check_module(Kind kind, const penstock_module* module);

}  // namespace penstock

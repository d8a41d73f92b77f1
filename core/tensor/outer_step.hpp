// The outer step of ranks that train apart: the update of an anchor from the mean drift of the
// ranks.
//
// Source: Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models",
// 2023, algorithm 1.
#pragma once

#include "core/base/status.hpp"

#include <penstock/runtime.h>

namespace penstock {

// See penstock_take_outer_step. invalid_argument: the element type is neither float32 nor float64,
// or an array is missing. [any]
Status take_outer_step(const penstock_outer_step& step);

}  // namespace penstock

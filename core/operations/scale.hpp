#pragma once

#include <cstdint>

namespace penstock {

// target = source * (factor / divisor). Floating point is computed in its own type, fp16 and bf16
// in float; with factor 1 it is source / divisor, rounded once. Integers: source * factor / divisor
// in double, truncated and clamped to their range. Source and target are equal or do not overlap.
// `source` must not be bool.
void scale_elements(uint32_t dtype, const void* source, void* target, uint64_t count, double factor,
                    double divisor);

}  // namespace penstock

// Element-wise reductions over raw elements of any dtype, in a fixed order.
#pragma once

#include <penstock/mean.h>

#include <cstdint>

namespace penstock::kernels {

// The dtypes that reduce_in_order knows, as PENSTOCK_DTYPE_BIT.
uint64_t reducible_dtypes() noexcept;

// The dtypes for which reduce_in_order knows PENSTOCK_REDUCE_MEAN too.
constexpr uint64_t mean_dtypes() noexcept {
  return PENSTOCK_DTYPE_BIT(PENSTOCK_FLOAT16) | PENSTOCK_DTYPE_BIT(PENSTOCK_BFLOAT16);
}

// target[i] = ((sources[0][i] op sources[1][i]) op sources[2][i]) ... for `count` elements of
// `dtype`. `target` may be one of the sources, but must not overlap a source partly. 16-bit floats
// are computed in float32 and rounded once, at the end. Integers wrap around. BOOL: sum and max are
// `or`, product and min are `and`. A NaN in any source gives NaN. A mean is the sum divided by
// n_sources. A single source is copied. Returns false, and does nothing, if the dtype or reduction
// is unknown or there are no sources. [any]
[[nodiscard]] bool reduce_in_order(uint32_t dtype, uint32_t reduction, const void* const* sources,
                                   uint64_t n_sources, void* target, uint64_t count,
                                   uint64_t first = 0) noexcept;

}  // namespace penstock::kernels

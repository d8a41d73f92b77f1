// Values at positions that all ranks draw equally (../strata.hpp), on a device: encode and decode
// of random-k, with the bits of the CPU. Contract: workspace.hpp.
#pragma once

#include <kernels/narrow_values.hpp>
#include <kernels/strata.hpp>

namespace penstock::kernels::cuda {

// The word of draw j is the random word of element first + j under `key`.
struct DrawnStrata {
  Strata strata;
  RandomKey key;
  uint64_t first;
};

// values[j] = work at the position of draw j in `type`, which is not int8, and within `limit`
// unless it is float32. If `taken`, the unsent rest of each entry stays in work: 0 if the whole
// value was sent, also for infinity.
[[nodiscard]] int32_t take_drawn(ValueType type, float* work, const DrawnStrata& drawn, float limit,
                                 bool taken, void* values, void* stream) noexcept;

// out[position of draw j] = values[j] * scale * mean, rounded after each product, and zero
// everywhere else.
[[nodiscard]] int32_t spread_drawn(ValueType type, const void* values, const DrawnStrata& drawn,
                                   float scale, float mean, float* out, void* stream) noexcept;

}  // namespace penstock::kernels::cuda

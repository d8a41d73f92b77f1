// Values at positions that all ranks draw alike (../strata.hpp), on a device: random-k's two
// halves, with the bits of the CPU. Contract: workspace.hpp.
#pragma once

#include <kernels/narrow_values.hpp>
#include <kernels/strata.hpp>

namespace penstock::kernels::cuda {

// Draw j's word is that of element first + j under `key`.
struct DrawnStrata {
  Strata strata;
  RandomKey key;
  uint64_t first;
};

// values[j] = work at the position of draw j in `type`, which is not int8, and within `limit`
// unless it is float32. Where `taken`, work keeps what was not sent of it: nothing where all was,
// infinity included.
[[nodiscard]] int32_t take_drawn(ValueType type, float* work, const DrawnStrata& drawn, float limit,
                                 bool taken, void* values, void* stream) noexcept;

// out[position of draw j] = values[j] * scale * mean, rounded after each, and zero everywhere else.
[[nodiscard]] int32_t spread_drawn(ValueType type, const void* values, const DrawnStrata& drawn,
                                   float scale, float mean, float* out, void* stream) noexcept;

}  // namespace penstock::kernels::cuda

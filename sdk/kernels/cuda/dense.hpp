// Dense values on a device that are sent or received as they are: copied, cleared, scaled, each in
// one pass and with the bits of the plain loop. Contract: workspace.hpp.
#pragma once

#include <kernels/cuda/workspace.hpp>
#include <kernels/fold.hpp>

#include <cstdint>

namespace penstock::kernels::cuda::dense {

// target <- source; the ranges must not overlap.
[[nodiscard]] int32_t copy(const void* source, void* target, uint64_t bytes, void* stream) noexcept;

// target <- zeros.
[[nodiscard]] int32_t clear(void* target, uint64_t bytes, void* stream) noexcept;

// target[i] = source[i] * scale; both may be the same array.
[[nodiscard]] int32_t copy_scaled(const float* source, float* target, uint64_t count, float scale,
                                  void* stream) noexcept;

// What stays of an array that is sent as a whole.
enum class Left { kAll, kNothing };

// sent <- work, and with kNothing work <- zeros. With `fold`, whose work is `work`, the array is
// compensated first, in the same pass and with the same bits (fold.hpp); grad and momentum are
// device memory.
[[nodiscard]] int32_t send_all(float* work, float* sent, uint64_t count, Left left, void* stream,
                               const Fold* fold = nullptr) noexcept;

}  // namespace penstock::kernels::cuda::dense

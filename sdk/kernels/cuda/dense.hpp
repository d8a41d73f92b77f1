// Copies, clears and scales dense values on a device that are sent or received uncompressed. Each
// function takes one pass and gives the bits of a plain loop. Contract: workspace.hpp.
#pragma once

#include <kernels/cuda/workspace.hpp>
#include <kernels/fold.hpp>

#include <cstdint>

namespace penstock::kernels::cuda::dense {

// target <- source; the ranges must not overlap.
[[nodiscard]] int32_t copy(const void* source, void* target, uint64_t bytes, void* stream) noexcept;

// target <- zeros.
[[nodiscard]] int32_t clear(void* target, uint64_t bytes, void* stream) noexcept;

// target[i] = source[i] * scale; source and target may be one array.
[[nodiscard]] int32_t copy_scaled(const float* source, float* target, uint64_t count, float scale,
                                  void* stream) noexcept;

// The content of work after the whole array was sent.
enum class Left { kAll, kNothing };

// sent <- work, and for kNothing work <- zeros. If there is a `fold`, its work must be `work`; this
// pass then compensates the array first, with the bits of compensate (fold.hpp). grad and momentum
// are device memory.
[[nodiscard]] int32_t send_all(float* work, float* sent, uint64_t count, Left left, void* stream,
                               const Fold* fold = nullptr) noexcept;

}  // namespace penstock::kernels::cuda::dense
